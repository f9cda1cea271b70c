"""The reference cloud of two layers against a plain loop, and the gathering of a deep profile where people read it."""

import copy
import dataclasses
import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import frostline as fl
from frostline.cli import main
from frostline.encoders.load import load
from frostline.monitoring.hooks import Tap
from frostline.monitoring.reference_cloud import Inside, MomentSums, ReferenceCloud, insides, layers_of
from frostline.monitoring.watch import watch
from frostline.theory.tilting import frozen
from tests.encoders import tiny
from tests.monitoring.sentences import fresh, sentences
from tests.tolerances import FLOAT32_PASS, FLOAT32_STATES, SAME_TEXT

HEADS, SIZE, WIDTH = 2, 3, 6
LENGTHS = (9, 4, 3, 2, 1, 12)


def drawn(left, seed=0):
    """One layer's inside for texts of these lengths, padded on one side, and the reference cloud of other numbers."""
    g = torch.Generator().manual_seed(seed)
    b, n = len(LENGTHS), max(LENGTHS)
    present = torch.stack([torch.arange(n) >= n - k if left else torch.arange(n) < k for k in LENGTHS])
    heads = [1.5 * torch.randn(b, n, HEADS, SIZE, generator=g) for _ in range(3)]
    own = Inside(torch.randn(b, n, WIDTH, generator=g), *heads, torch.randn(b, n, WIDTH, generator=g))
    mix = torch.randn(2, HEADS, 2 * SIZE, 2 * SIZE, generator=g)
    joint = mix @ mix.mT
    cloud = ReferenceCloud(
        (0,),
        torch.randn(1, HEADS, SIZE, generator=g),
        torch.randn(1, HEADS, SIZE, generator=g),
        joint[:1, ..., :SIZE, :SIZE],
        joint[:1, ..., :SIZE, SIZE:],
        torch.tensor([[0.01, -0.2]]),
        torch.ones(1),
        torch.randn(1, WIDTH, HEADS * SIZE, generator=g),
        torch.randn(1, WIDTH, generator=g),
    )
    return own, cloud, present


def plain(own, cloud, row, places):
    """Equations 17 and 18 token by token in float64: observed and expected resultant length of one text."""
    array = lambda x: x.double().numpy()  # noqa: E731
    q, k, v = (array(x[row, places]) for x in (own.query, own.key, own.value))
    x, update = array(own.tokens[row, places]), array(own.update[row, places])
    n = len(x)
    expected = np.zeros_like(x)
    for i in range(n):
        means = []
        for h in range(HEADS):
            atoms = sorted({0, n - 1, i, max(i - 1, 0), min(i + 1, n - 1)})
            rest = n - len(atoms)
            asking = q[i, h] / np.sqrt(SIZE)
            masses, values = [asking @ k[a, h] for a in atoms], [v[a, h] for a in atoms]
            if rest:
                sigma = np.sqrt(asking @ array(cloud.keys_keys[0, h]) @ asking)
                tilt = frozen(np.array(sigma), rest)
                masses.append(np.log(rest) + asking @ array(cloud.keys[0, h]) + float(tilt.mass))
                moved = asking @ array(cloud.keys_values[0, h])
                values.append(array(cloud.values[0, h]) + float(tilt.share) * moved)
            weights = np.exp(np.array(masses) - max(masses))
            means.append(weights / weights.sum() @ np.array(values))
        expected[i] = x[i] + array(cloud.output[0]) @ np.concatenate(means) + array(cloud.bias[0])

    def resultant(tokens):
        centred = tokens - tokens.mean(1, keepdims=True)
        return np.linalg.norm((centred / np.linalg.norm(centred, axis=1, keepdims=True)).mean(0))

    line = array(cloud.line[0])
    return resultant(x + update), resultant(expected) + line[0] + line[1] / n


@pytest.mark.parametrize("at_once", [1, 30, 10_000])
@pytest.mark.parametrize("left", [False, True])
def test_the_gathering_is_what_a_plain_loop_gives(monkeypatch, left, at_once):
    """Texts of one to twelve tokens, padding on either side, in portions of any size; some clouds are frozen."""
    monkeypatch.setattr("frostline.monitoring.reference_cloud.AT_ONCE", at_once)
    own, cloud, present = drawn(left)
    found = cloud.gather([own], present)
    for row in range(len(LENGTHS)):
        observed, expected = plain(own, cloud, row, present[row])
        assert np.isclose(found.observed[row, 0], observed, atol=FLOAT32_PASS)
        assert np.isclose(found.expected[row, 0], expected, atol=FLOAT32_PASS)


def test_moments_are_those_of_the_inner_tokens():
    """In two batches as in one, with numpy's covariance."""
    own, _, present = drawn(False)
    moments = MomentSums((0,))
    for rows in (slice(0, 2), slice(2, None)):
        moments.add([own[rows]], present[rows])
    found = moments.cloud()
    inner = [(row, place) for row, length in enumerate(LENGTHS) for place in range(1, length - 1)]
    keys, values = (np.array([x[row, place].double().numpy() for row, place in inner]) for x in (own.key, own.value))
    for h in range(HEADS):
        both = np.cov(np.concatenate([keys[:, h], values[:, h]], 1).T, bias=True)
        assert np.allclose(found.keys[0, h], keys[:, h].mean(0)) and np.allclose(
            found.values[0, h], values[:, h].mean(0)
        )
        assert np.allclose(found.keys_keys[0, h], both[:SIZE, :SIZE], atol=1e-6)
        assert np.allclose(found.keys_values[0, h], both[:SIZE, SIZE:], atol=1e-6)


@pytest.mark.parametrize("family", ["BERT", "ALBERT", "DistilBERT"])
def test_hooks_see_the_inside_of_the_layers_asked_for(family):
    """Also where one module serves every layer: each result is that of a hook put on by hand."""
    model = tiny.model(family).eval()
    encoder = load(model)
    calls, seen = {}, []
    for part in ("query", "key", "value", "output"):
        for layer in range(1 if encoder.family.shared else 3):
            module = model.get_submodule(encoder.path(getattr(encoder.family, part), layer))
            module.register_forward_hook(lambda m, i, o, part=part: calls.setdefault(part, []).append(o))
    tap = Tap(model, encoder, (0, 1, 2, 3), seen.append, inside=(1, 2), strict=True)
    with torch.inference_mode():
        model(input_ids=torch.arange(5, 15).reshape(2, 5))
    tap.close()
    states = seen[0].states[4:]
    wanted = [calls[part][layer] for layer in (1, 2) for part in ("query", "key", "value", "output")]
    assert len(states) == 8 and all(torch.equal(x, y) for x, y in zip(states, wanted, strict=True))


@pytest.mark.parametrize("family", ["BERT", "RoBERTa", "ALBERT", "ELECTRA", "DistilBERT", "ESM"])
def test_the_inside_of_a_layer_explains_what_attention_adds(family):
    """Attention weights from queries and keys, through the output matrix, give the update of every family."""
    settings = tiny.config(family)
    if family == "ESM":
        settings.position_embedding_type = "absolute"
    made, seen = tiny.model(family, settings=settings).eval(), []
    encoder = load(made)
    assert layers_of(encoder, (0, 1, 2, 3)) == (1, 2)
    cloud = dataclasses.replace(drawn(False)[1], layers=(1,)).bound(encoder)
    tap = Tap(made, encoder, (0, 1, 2, 3), seen.append, inside=(1,), strict=True)
    with torch.inference_mode():
        made(input_ids=torch.arange(5, 15).reshape(2, 5), attention_mask=torch.ones(2, 5, dtype=torch.long))
    tap.close()
    (own,) = insides((1,), encoder.heads, (0, 1, 2, 3), seen[0].states)
    logits = torch.einsum("bihk,bjhk->bhij", own.query, own.key) / encoder.head_size**0.5
    means = torch.einsum("bhij,bjhk->bihk", logits.softmax(-1), own.value)
    update = means.flatten(2) @ cloud.output[0].T + cloud.bias[0]
    assert torch.allclose(update, own.update, atol=FLOAT32_STATES)


def test_a_deep_profile_scores_as_a_full_one_and_expects_what_normal_texts_do(base, folder):
    texts = fresh(200)
    full, deep = (base.score(folder, texts, profile=level) for level in ("full", "deep"))
    assert np.array_equal(full.scores, deep.scores) and np.array_equal(full.p_values, deep.p_values)
    assert full.spread is None and full.observed.shape == (200, 4)
    assert deep.observed.shape == deep.expected.shape == deep.spread.shape == (200, 2)
    errors = (deep.observed - deep.expected) / deep.spread
    # Means of 200 texts against the line of 180 others, spreads likewise: five standard errors.
    assert (np.abs(errors.mean(0)) < 0.5).all() and (np.abs(np.log(errors.std(0))) < 0.4).all()
    # Length alone explains less than what the tokens are.
    length = np.array([len(text.split()) for text in texts])
    alone = np.stack([column - np.polyval(np.polyfit(1 / length, column, 1), 1 / length) for column in deep.observed.T])
    assert (np.abs(errors * deep.spread).mean(0) < np.abs(alone).mean(1)).all()


def test_a_file_keeps_the_cloud(base, frost, folder):
    texts = fresh(5)
    again = fl.load_baseline(frost)
    one, other = (each.score(folder, texts, profile="deep") for each in (base, again))
    assert np.array_equal(one.expected, other.expected) and np.array_equal(one.spread, other.spread)
    assert again.identity == base.identity


def planted(model, encoder, layer, factor):
    """A hook that lets the tokens of this layer share less of what attention adds: they gather less."""

    def apart(module, inputs, result):
        return result - factor * result.mean(1, keepdim=True)

    return model.get_submodule(encoder.path(encoder.family.output, layer)).register_forward_hook(apart)


def test_a_layer_that_gathers_less_than_its_cloud_should_is_named(base, live):
    """Strange texts in a model whose second layer spreads its tokens, of which nothing is said without that."""
    model, tokenizer = copy.deepcopy(live[0]), live[1]
    texts = [" ".join(np.random.default_rng(seed).choice(tiny.WORDS, 12)) for seed in range(20)]
    before = base.score(model, texts, tokenizer=tokenizer, profile="deep")
    handle = planted(model, load(model), 1, 2.0)
    after = base.score(model, texts, tokenizer=tokenizer, profile="deep")
    handle.remove()
    said = [[r for r in reasons if r.part == "gathering"] for reasons in after.reasons]
    named = 0
    for row, reasons in enumerate(said):
        change = (after.observed[row] - after.expected[row]) / after.spread[row]
        assert bool(reasons) == (after.p_values[row] <= 0.05 and np.abs(change).max() >= 2)
        for reason in reasons:
            layer = int(np.abs(change).argmax())
            up = "more" if change[layer] > 0 else "less"
            assert reason.says.startswith(f"layer {(2, 3)[layer]} gathers {up} than its cloud should: ")
            assert f"{after.observed[row, layer]:.3f}"[:4] in reason.says and " ± " in reason.says
            assert len(reason.picture) == 2 and [number for number, _, _ in reason.layers] == [2, 3]
            assert np.isclose(reason.sigma, np.abs(change).max(), rtol=1e-3)
            quiet = not any(r.part == "gathering" for r in before.reasons[row])
            named += quiet and "layer 2 gathers less" in reason.says
    assert named >= 5


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_watch_says_what_scoring_says(base, live, folder, side):
    """Of a pass that is padded on either side, the last of three; the model's output is the same to the bit."""
    model, tokenizer = live
    texts = [*fresh(6), "ice", "ice " * 40]
    batch = tokenizer(texts, padding=True, return_tensors="pt", padding_side=side)
    batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp_min(0)
    with torch.inference_mode():
        bare = model(**batch).last_hidden_state
        with watch(model, base, profile="deep", tokenizer=tokenizer) as seen:
            assert torch.equal(model(**batch).last_hidden_state, bare)
            model(**tokenizer(fresh(7)[6:], return_tensors="pt"))
            model(**batch)
            found = seen.last
    assert seen.failures == 0 and seen.texts == 17
    wanted = base.score(folder, texts, profile="deep")
    for name in ("observed", "expected", "spread"):
        assert np.allclose(getattr(found, name), getattr(wanted, name), atol=SAME_TEXT), name
    kinds = [[reason.says for reason in text.reasons if reason.part == "gathering"] for text in seen.strange]
    assert any(kinds) == any("gathering" in {r.part for r in reasons} for reasons in wanted.reasons)


@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_and_texts_of_special_tokens_break_nothing(base, live, autocast):
    model = copy.deepcopy(live[0]) if autocast else copy.deepcopy(live[0]).to(torch.bfloat16)
    special = torch.tensor([[2, 3, 0, 0], [2, 0, 0, 0], [2, 7, 3, 0]])
    with watch(model, base, profile="deep", alpha=1.0) as seen, torch.inference_mode():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            model(input_ids=special, attention_mask=(special != 0).long())
        scores = seen.last
    assert seen.failures == 0 and len(seen.strange) == 3
    for values in (scores.observed, scores.expected):
        assert np.isfinite(values).all() and (values >= 0).all()
    # One token is its own mean.
    assert np.allclose(scores.observed[1], 1, atol=FLOAT32_PASS)


def test_there_is_no_deep_profile_where_positions_are_inside_attention(tmp_path):
    for family in ("MPNet", "ModernBERT"):
        made = tiny.save(tiny.model(family, spread=0.1), tmp_path / family)
        found = fl.baseline(made, texts=sentences(520, seed=2))
        assert list(found.judges) == ["full", "light"]
        with pytest.raises(fl.errors.BadParameter, match="positions inside attention"):
            watch(tiny.model(family, spread=0.1), found, profile="deep")


def test_the_command_line_shows_what_is_expected(frost, folder, tmp_path):
    (tmp_path / "some.txt").write_text("\n".join(fresh(3)))
    given = ["score", str(frost), "--model", str(folder), "--text", str(tmp_path / "some.txt"), "--quiet", "--json"]
    for profile, count in (("deep", 2), ("full", 4)):
        result = CliRunner().invoke(main, [*given, "--profile", profile])
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)
        assert len(told["clouds"]) == count and all(len(x) == count for x in told["texts"][0]["resultant"].values())
        assert ("spread" in told["texts"][0]["resultant"]) == (profile == "deep")
    assert CliRunner().invoke(main, [*given, "--profile", "deep", "--light"]).exit_code == 2
    wrong = CliRunner().invoke(main, [*given, "--profile", "deeper"])
    assert wrong.exit_code == 2 and "one of full, light, deep" in wrong.output


def test_old_names_of_a_profile_work_with_a_warning(base, frost, folder, tmp_path):
    texts = fresh(3)
    light = base.score(folder, texts, profile="light").p_values.tolist()
    with pytest.warns(DeprecationWarning, match="profile="):
        assert base.score(folder, texts, level="light").p_values.tolist() == light
    (tmp_path / "some.txt").write_text("\n".join(texts))
    given = ["score", str(frost), "--model", str(folder), "--text", str(tmp_path / "some.txt"), "--json", "--light"]
    result = CliRunner().invoke(main, given)
    assert "now --profile light" in result.stderr
    assert [text["p_value"] for text in json.loads(result.stdout)["texts"]] == pytest.approx(light)
