"""Heads of an opened audit in headless Chromium: grid, picture, bars and words show the numbers of the folder."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from frostline.auditing.explanations import LAW
from frostline.auditing.scene_files import SCENES, SIGHTS
from frostline.exploring.saved_folders import open_folder
from tests.browser.chromium import needs_chromium
from tests.browser.test_explore_page import PHONE, WIDE, opened, until
from tests.exploring.conftest import exploring
from tests.exploring.small_audit import WORDS, write_audit

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_audit(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def client(folder):
    with exploring(open_folder(folder)) as client:
        yield client


@pytest.fixture
def visit(browser, client):
    pages = []

    def go(address="", look=WIDE, **more):
        pages.append(opened(browser, f"{client.url}/{address}", look, **more))
        until(pages[-1], "document.getElementById('looks').textContent.length > 1")
        return pages[-1]

    yield go
    for page in pages:
        assert page.troubles == []
        page.close()


def shown(page, how):
    """The widths of the bars, in percent."""
    return [
        float(width.rstrip("%"))
        for width in page.locator(f"#shares .{how}").evaluate_all("all => all.map(e => e.style.width)")
    ]


def overlay(page):
    """A fingerprint of what is drawn over the tokens, when it is drawn."""
    page.evaluate(
        "() => new Promise(done => { view.draw(); requestAnimationFrame(() => requestAnimationFrame(done)); })"
    )
    return page.evaluate("view.over.toDataURL()")


def cell(page, layer, head):
    return page.locator("#heads tbody tr").nth(layer).locator("button").nth(head)


@pytest.mark.parametrize("look", [WIDE, PHONE], ids=["wide", "phone"])
def test_bars_are_the_shares_of_the_chosen_head_and_token(visit, folder, look):
    kept = load_file(folder / SIGHTS)
    page = visit("", look)
    for text, layer, head, token in ((0, 0, 0, 2), (0, 1, 2, 4), (1, 1, 1, 1)):
        page.locator("#texts").select_option(str(text))
        until(page, "document.getElementById('looks').textContent.length > 1")
        cell(page, layer, head).click()
        page.locator("#text [role=option]").nth(token).click()
        for how, name in (("law", "law"), ("paid", "paid")):
            assert shown(page, how) == pytest.approx(
                100 * kept[f"{text}.{name}"][layer, head, token].astype(float), abs=1e-3
            )
        said = page.locator("#looks").inner_text()
        assert f"(token {token}) in layer {layer}, head {head}" in said
        most = int(np.argmax(kept[f"{text}.law"][layer, head, token]))
        named = {"first": "the first token", "last": "the last token", "self": "itself", "best": "the best other token"}
        assert named.get(LAW[most], "the cloud of the others") in said
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_grid_says_what_heads_look_at(visit):
    page = visit()
    assert page.locator("#heads tbody button").all_inner_texts() == ["F", "C", "P"] * 2
    assert cell(page, 1, 2).get_attribute("aria-label") == "layer 1, head 2: previous token 0.999"
    assert cell(page, 0, 1).get_attribute("title").endswith("less than nothing explained")
    cell(page, 1, 0).click()
    assert cell(page, 1, 0).get_attribute("aria-pressed") == "true"
    assert page.locator("#heads [aria-pressed=true]").count() == 1
    said = page.locator("#role").inner_text()
    assert "Layer 1, head 0" in said and "first token 0.700" in said and "explain 95 %" in said
    # The slider and the grid go together; after the last layer no head looks.
    assert page.locator("#layer").input_value() == "1"
    page.locator("#layer").fill("2")
    assert page.locator("#heads [aria-pressed=true]").count() == 0
    assert "no head looks at them" in page.locator("#looks").inner_text() and page.locator("#shares").is_hidden()
    page.locator("#layer").fill("0")
    assert cell(page, 0, 0).get_attribute("aria-pressed") == "true" and page.locator("#shares").is_visible()


def test_words_tell_tilted_from_frozen(visit):
    page = visit("#layer=0&head=0&token=2")
    assert "σ is 0.25 of σN: the cloud is tilted, not frozen" in page.locator("#looks").inner_text().replace("\n", "")
    cell(page, 0, 2).click()
    assert "σ is 1.75 of σN: the cloud is frozen" in page.locator("#looks").inner_text().replace("\n", "")


def test_pointing_shows_a_token_and_a_click_keeps_it(visit):
    page = visit("#layer=1&head=1&token=2")
    first, chosen = overlay(page), page.locator("#looks").inner_text()
    page.locator("#text [role=option]").nth(4).hover()
    assert "(token 4)" in page.locator("#looks").inner_text() and overlay(page) != first
    page.locator("#role").hover()
    assert page.locator("#looks").inner_text() == chosen and overlay(page) == first
    # In the picture, too; the best token of the one pointed at is marked in the text.
    x, y, _ = page.evaluate("view.onScreen(view.spots, 3, 3)")
    box = page.locator("#cloud").bounding_box()
    page.mouse.move(box["x"] + x, box["y"] + y)
    assert "(token 3)" in page.locator("#looks").inner_text()
    assert page.locator("#text .best").inner_text() == WORDS[4].removeprefix("##")
    page.mouse.down()
    page.mouse.up()
    page.locator("#role").hover()
    assert "(token 3)" in page.locator("#looks").inner_text()
    # Turning the picture chooses nothing.
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.mouse.up()
    page.locator("#role").hover()
    assert "(token 3)" in page.locator("#looks").inner_text()


def test_keys_choose_heads_and_tokens(visit):
    page = visit("#layer=0&head=0&token=2")
    cell(page, 0, 0).focus()
    for key, at in (
        ("ArrowRight", (0, 1)),
        ("ArrowDown", (1, 1)),
        ("ArrowRight", (1, 2)),
        ("ArrowRight", (1, 2)),
        ("ArrowUp", (0, 2)),
    ):
        page.keyboard.press(key)
        assert cell(page, *at).get_attribute("aria-pressed") == "true"
        assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith(
            "layer {}, head {}".format(*at)
        )
    # One stop of the tab key for all heads, and one for all tokens.
    assert page.locator("#heads [tabindex='0']").count() == page.locator("#text [tabindex='0']").count() == 1
    page.locator("#text [tabindex='0']").focus()
    for key, token in (("ArrowRight", 3), ("ArrowDown", 4), ("ArrowLeft", 3)):
        page.keyboard.press(key)
        assert f"(token {token})" in page.locator("#looks").inner_text()
        assert page.locator("#text [aria-selected=true]").inner_text() == WORDS[token].removeprefix("##")
    page.keyboard.press(".")
    assert page.locator("#layer").input_value() == "1"
    until(page, "location.hash.endsWith('layer=1&colour=token&frame=tokens&head=2&token=3')")


def test_the_ellipse_is_the_outline_of_the_ellipsoid(visit, folder):
    """Its axes by numpy's eigenvalues of the covariance as it is seen; and the tilt moves it."""
    kept = load_file(folder / SIGHTS)
    page = visit("#layer=1&head=1&token=2")
    page.evaluate(
        """() => { const over = view.over.getContext("2d"), { ellipse } = CanvasRenderingContext2D.prototype;
        window.drawn = []; over.ellipse = (...how) => { drawn.push(how); ellipse.apply(over, how); } }"""
    )
    overlay(page)
    drawn = page.evaluate("drawn.slice(-2)")
    turn = np.array(page.evaluate("Array.from(view.matrix)")).reshape(3, 3)
    scale = page.evaluate("0.45 * view.zoom * Math.min(view.canvas.width, view.canvas.height)")
    xx, xy, xz, yy, yz, zz = kept["0.covariance"][1, 2, 0].astype(float)
    seen = (turn @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ turn.T)[:2, :2]
    axes = 2 * scale * np.sqrt(np.linalg.eigvalsh(seen)[::-1])
    for _, _, long, short, angle, *_ in drawn:
        assert [long, short] == pytest.approx(axes, rel=1e-4)
        # Down is positive on the screen.
        across = np.array([np.cos(angle), -np.sin(angle)])
        assert across @ seen @ across == pytest.approx((axes[0] / 2 / scale) ** 2, rel=1e-4)
    moved = scale * (turn @ kept["0.tilt"][1, 1, 2, 0].astype(float))[:2] * [1, -1]
    assert np.subtract(drawn[1][:2], drawn[0][:2]) == pytest.approx(moved, abs=0.02)


def test_zoom_follows_the_tokens_until_the_reader_zooms(visit):
    page = visit("#layer=0")
    zoom = page.evaluate("view.zoom")
    page.locator("#layer").fill("1")
    assert page.evaluate("view.zoom") != zoom
    page.locator("#whole").click()
    page.locator("#layer").fill("0")
    assert page.evaluate("view.zoom") == 1
    page.locator("#fit").click()
    assert page.evaluate("view.zoom") == pytest.approx(zoom)


def test_an_older_audit_says_how_to_make_it_again(browser, tmp_path):
    with exploring(open_folder(write_audit(tmp_path, sights=False))) as client:
        page = opened(browser, client.url)
        until(page, "!document.getElementById('without').hidden")
        assert "--keep-texts 8" in page.locator("#without").inner_text()
        assert page.locator("#heads").is_hidden() and page.locator("#shares").is_hidden()
        assert page.troubles == []
        page.close()


def test_words_of_a_folder_are_not_run(browser, tmp_path):
    evil = "<img src=x onerror=document.title=1>"
    facts = json.loads((write_audit(tmp_path) / "audit.json").read_text())
    for row in facts["heads"]:
        row["role"] = evil
    (tmp_path / "audit.json").write_text(json.dumps(facts))
    scenes = json.loads((tmp_path / SCENES).read_text())
    (tmp_path / SCENES).write_text(json.dumps([scene | {"words": [evil] * 6} for scene in scenes]))
    with exploring(open_folder(tmp_path)) as client:
        page = opened(browser, client.url)
        until(page, "document.getElementById('looks').textContent.length > 1")
        assert evil in page.locator("#role").inner_text() and evil in page.locator("#looks").inner_text()
        assert page.locator("img").count() == 0 and page.troubles == []
        page.close()


def test_tokens_without_a_cloud_and_beyond_what_is_kept(browser, tmp_path):
    arrays = load_file(write_audit(tmp_path) / SIGHTS)
    alone = np.array([0.5, 0.3, 0.2, 0, 0], np.float16)
    arrays["0.law"][0], arrays["0.paid"][0] = alone, alone
    arrays["0.best"][0], arrays["0.count"][0] = -1, 0
    # In the other layer the best token is one that is not kept.
    arrays["0.best"][1] = 150
    save_file(arrays, tmp_path / SIGHTS)
    scenes = json.loads((tmp_path / SCENES).read_text())
    scenes[0]["length"] = 200
    (tmp_path / SCENES).write_text(json.dumps(scenes))
    with exploring(open_folder(tmp_path)) as client:
        page = opened(browser, f"{client.url}/#token=2")
        until(page, "document.getElementById('looks').textContent.length > 1")
        assert "there is no cloud" in page.locator("#looks").inner_text()
        rows = page.locator("#shares tbody th").all_inner_texts()
        assert "no best other" in rows[3] and "no cloud" in rows[4] and "token 199, not shown" in rows[1]
        page.locator("#layer").fill("1")
        assert "token 150, not shown" in page.locator("#shares tbody th").nth(3).inner_text()
        assert "its window is shorter than the text" in page.locator("#looks").inner_text()
        page.locator("#cloud").hover()
        assert page.troubles == []
        page.close()
