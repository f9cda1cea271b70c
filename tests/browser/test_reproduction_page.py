"""The page of a reproduction in headless Chromium: nothing asked of the network, nothing broken, usable by keyboard."""

import json

import pytest

from frostline.experiments.claims.catalogue import chosen
from frostline.experiments.runner import reproduce
from tests.browser.chromium import needs_chromium

pytestmark = needs_chromium
NAMES = ["zero-temperature-limit", "terminal-phase", "stability"]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    return reproduce(chosen(NAMES, "test"), size="test", out=tmp_path_factory.mktemp("page")).page


def test_quiet_and_alone(page, page_file):
    names = page.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
    assert len(names) == len(set(names))
    assert page.troubles == [] and page.asked == [page_file.as_uri()]


def test_every_figure_shows_something_and_fits(page):
    sizes = page.eval_on_selector_all(
        ".plot svg", "all => all.map(e => [e.clientWidth, e.querySelectorAll('path').length])"
    )
    assert len(sizes) == 3 and all(width > 300 and paths > 20 for width, paths in sizes)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


INKED = (
    "c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; return d.reduce((s, v) => s + v) }"
)


def test_the_scrubber_by_keyboard(page):
    figure = page.locator(".scrubber").first
    slider, canvas, output = figure.locator(".time"), figure.locator("canvas"), figure.locator("output")
    first, words = canvas.evaluate(INKED), output.inner_text()
    assert first > 0 and words.startswith("t = 0.00")
    slider.focus()
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    assert slider.input_value() == "12" and output.inner_text() != words
    assert canvas.evaluate(INKED) != first
    page.keyboard.press("End")
    assert slider.input_value() == slider.get_attribute("max")
    # Play, from the end, begins anew; the button works by keyboard too.
    button = figure.locator(".play")
    button.focus()
    page.keyboard.press("Enter")
    assert button.inner_text() == "Pause"
    page.wait_for_function("n => document.querySelector('.time').value != n", arg=slider.get_attribute("max"))
    page.keyboard.press("Enter")
    assert button.inner_text() == "Play"


def test_the_sphere_turns(page):
    figure = page.locator(".scrubber").nth(1)
    before = figure.locator("canvas").evaluate(INKED)
    figure.locator(".turn").focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    assert figure.locator("canvas").evaluate(INKED) != before


def test_its_numbers_are_those_of_the_json(page, page_file):
    facts = json.loads((page_file.parent / "summary.json").read_text())
    rows = page.locator(".verdicts tbody tr")
    assert rows.count() == len(facts["claims"])
    for number, claim in enumerate(facts["claims"]):
        assert rows.nth(number).locator(".badge").inner_text() == claim["verdict"]
        found = page.locator(f"#{claim['name']} .checks tbody tr td:nth-of-type(2)")
        told = [text.replace("\xa0", " ") for text in found.all_text_contents()]
        plain = [
            check["found"].replace("^{", "").replace("}", "").replace("_", "").replace("^", "")
            # Checks of the software are a table of their own, below.
            for check in sorted(claim["measured"]["checks"], key=lambda check: check["software"])
        ]
        assert told == plain
        apart = page.locator(f"#{claim['name']} .checks.software tbody tr")
        assert apart.count() == sum(check["software"] for check in claim["measured"]["checks"])
        assert set(apart.locator(".badge").all_inner_texts()) <= {"passes"}
