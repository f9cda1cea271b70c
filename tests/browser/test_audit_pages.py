"""The pages of an audit and of a comparison in headless Chromium."""

import pytest

from frostline.auditing.audit import audit
from frostline.auditing.comparison.compare import diff
from frostline.auditing.comparison.comparison_page import save_comparison
from frostline.auditing.save import save_audit
from tests.browser.chromium import needs_chromium
from tests.encoders import tiny

pytestmark = needs_chromium


@pytest.fixture(scope="module", params=["audit", "weights", "diff"])
def page_file(request, tmp_path_factory):
    out = tmp_path_factory.mktemp(request.param)
    if request.param == "diff":
        return save_comparison(diff(tiny.model("BERT"), tiny.model("BERT", seed=1)), out)
    folder = tiny.save(tiny.model("BERT"), tmp_path_factory.mktemp("model"))
    return save_audit(audit(folder, tiny.TEXTS * 2 if request.param == "audit" else None), out)


def test_quiet_alone_and_whole(page, page_file):
    assert page.troubles == [] and page.asked == [page_file.as_uri()]
    names = page.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
    assert len(names) == len(set(names))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_figure_is_drawn_and_explained(page, page_file):
    sizes = page.eval_on_selector_all(
        ".plot svg", "all => all.map(e => [e.clientWidth, e.querySelectorAll('path, image').length])"
    )
    assert len(sizes) == {"audit": 6, "weights": 2, "diff": 1}[page_file.parent.name.rstrip("0123456789")]
    assert all(width > 300 and parts > 10 for width, parts in sizes)
    captions = page.eval_on_selector_all("figcaption", "all => all.map(e => e.innerText)")
    assert len(captions) == len(sizes) and all(text.startswith("How to read this.") for text in captions)


def test_details_open_by_keyboard(page):
    first = page.locator("summary").first
    first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details[open] table").first.is_visible()
