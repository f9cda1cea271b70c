"""Surfaces of texts: what anybody sees in a text, and what of it no reference text has."""

import json

import numpy as np
import pytest

from frostline.monitoring.surface import (
    HIGH,
    LONGER,
    MARGINS,
    SurfaceReference,
    is_surface,
    learn_surface,
    read_surface,
    script_of,
)
from tests.monitoring.sentences import sentences

UNKNOWN = "�"


class Characters:
    """A tokenizer whose tokens are characters; emoji are unknown to it."""

    unk_token_id = ord(UNKNOWN)

    def __call__(self, text):
        return [self.unk_token_id if ord(char) > 0xFFFF else ord(char) for char in text]

    def decode(self, ids, *, skip_special_tokens):
        return "".join(chr(number) for number in ids if number != self.unk_token_id)


class Words:
    """A tokenizer whose tokens are words; it knows every word."""

    unk_token_id = None

    def __init__(self):
        self.ids, self.words = {}, []

    def __call__(self, text):
        for word in text.split():
            if word not in self.ids:
                self.ids[word] = len(self.words)
                self.words.append(word)
        return [self.ids[word] for word in text.split()]

    def decode(self, ids, *, skip_special_tokens):
        return " ".join(self.words[number] for number in ids)


PROSE = [text + "." for text in sentences(600, seed=0)]


def facts_of(text, *, prose=PROSE, tokenizer=None):
    tokenizer = tokenizer or Words()
    usual = SurfaceReference.of({"surface": learn_surface([tokenizer(one) for one in prose], tokenizer)})
    return dict(usual.explain(read_surface(tokenizer(text), tokenizer)))


@pytest.mark.parametrize(
    ("letters", "script"),
    [
        ("aZé", "Latin"),
        ("яЖ", "Cyrillic"),
        ("电影", "Han"),
        ("ほ", "Hiragana"),
        ("한", "Hangul"),
        ("فل", "Arabic"),
        ("ש", "Hebrew"),
        ("हिन", "Devanagari"),
        ("ψ", "Greek"),
        ("ａ", "full-width"),
        ("𝐚", "mathematical"),
    ],
)
def test_every_letter_has_the_script_that_people_call_it_by(letters, script):
    assert {script_of(letter) for letter in letters if letter.isalpha()} == {script}


@pytest.mark.parametrize(
    ("text", "part", "words"),
    [
        ("这部电影 非常 精彩", "script", "written in Han script; the reference is 100 % Latin"),
        ("Этот фильм был очень скучным", "script", "written in Cyrillic script"),
        ("the frоst freezes and the lіne moves", "script", "7 % of its letters are Cyrillic; the reference is"),
        ("4111 1111 2222 3333 ice", "script", "84 % of its characters are digits, usually none"),
        ("the ice melts 😀 🔥 👍", "script", "21 % of its characters are emoji, usually none"),
        ("<p>the ice <b>melts</b></p>", "markup", "HTML or XML: 56 % markup characters, usually none"),
        ('{"ice": 3, "frost": [1, 2]}', "markup", "code or markup: 78 %"),
        ("for x in range(3): y[x] = {x}", "markup", "code or markup: 30 %"),
        ("see https://example.org/a?b=c and the ice", "markup", "links: 68 %"),
        ("spam " * 20, "repetition", "94 % of it repeats earlier words of the text, usually none"),
    ],
)
def test_what_no_reference_text_has_is_named(text, part, words):
    prose = [" ".join(dict.fromkeys(text.split())) for text in PROSE]
    facts = facts_of(text, prose=prose)
    assert words in facts[part]


def test_texts_of_the_reference_have_nothing_to_name():
    """At most 1 % of the texts lie above each number, before the margins."""
    tokenizer = Words()
    surfaces = [read_surface(tokenizer(text), tokenizer) for text in PROSE]
    usual = SurfaceReference.learn(surfaces)
    named = [usual.explain(surface) for surface in surfaces]
    assert sum(map(bool, named)) <= (1 - HIGH) * (len(MARGINS) + 3) * len(PROSE)
    assert len(sentences(600, seed=0)) == len(named)


def test_a_reference_of_two_scripts_knows_both():
    mixed = [text for pair in zip(PROSE, ["это просто фильм про лед"] * 600, strict=True) for text in pair]
    assert "script" not in facts_of("это фильм", prose=mixed)
    assert facts_of("这部电影", prose=mixed)["script"] == "written in Han script; the reference is 50 % Latin"


def test_the_length_is_named_on_both_sides():
    prose = [" ".join(f"w{k}" for k in range(10 + n % 11)) for n in range(600)]
    long, short = " ".join(f"w{k}" for k in range(60)), "w1 w2 w3"
    assert facts_of(long, prose=prose)["length"] == "3 times as long as 99 % of the reference (60 tokens; 20)"
    assert facts_of(short, prose=prose)["length"] == "shorter than 99 % of the reference (3 tokens; 10)"
    for tokens in (10, 20, int(20 * LONGER)):
        assert "length" not in facts_of(" ".join(f"w{k}" for k in range(tokens)), prose=prose)


def test_repetition_counts_runs_of_three():
    """Against a plain loop; a text said k times repeats (k − 1)/k of its runs."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        ids = rng.integers(0, rng.integers(2, 9), rng.integers(0, 30)).tolist()
        before, repeats = [], 0
        for place in range(len(ids) - 2):
            repeats += ids[place : place + 3] in before
            before.append(ids[place : place + 3])
        wanted = repeats / len(before) if before else 0
        assert read_surface(ids).shares == {"repetition": pytest.approx(wanted)}
    ids = list(range(50))
    for times in (1, 2, 4):
        share = read_surface(ids * times).shares["repetition"]
        assert share == pytest.approx((times - 1) / times, abs=0.02)


def test_unknown_tokens_are_named_and_are_no_repetition():
    tokenizer = Characters()
    facts = facts_of("ice " + "😀" * 6, tokenizer=tokenizer)
    assert facts["script"].startswith("60 % of its tokens are unknown to the tokenizer")
    assert "repetition" not in facts


def test_without_a_tokenizer_only_length_and_repetition_are_known():
    surface = read_surface([5, 6, 7] * 30)
    tokenizer = Words()
    usual = SurfaceReference.of({"surface": learn_surface([tokenizer(text) for text in PROSE], tokenizer)})
    assert [part for part, _ in usual.explain(surface)] == ["repetition", "length"]
    assert surface.scripts == {} and surface.signs == ""


def test_no_word_of_a_text_is_in_its_facts():
    secret = "Пароль <secret>hunter2</secret> https://secret.example/hunter2 " * 30
    facts = " ".join(facts_of(secret).values()).lower()
    assert facts and not any(word in facts for word in ("hunter", "secret", "example", "пароль"))
    assert facts.isprintable()


def test_the_reference_survives_a_file():
    tokenizer = Words()
    told = learn_surface([tokenizer(text) for text in PROSE], tokenizer)
    again = json.loads(json.dumps(told))
    assert again == told and is_surface(again)
    assert SurfaceReference.of({"surface": again}).header() == told
    assert SurfaceReference.of({}) is None
    assert not any(word in json.dumps(told) for word in ("frost", "ice", "melts"))


@pytest.mark.parametrize(
    "text", ["<" * 20_000, "< a " * 5_000, '" a' * 5_000, "https://" * 2_000, "<a" + " b" * 10_000]
)
def test_beginnings_of_markup_without_an_end_are_read(text):
    """Patterns look a bounded way ahead; with an unbounded one some of these texts would hang the test."""
    assert 0 <= read_surface(list(map(ord, text)), Characters()).shares["markup"] <= 1
