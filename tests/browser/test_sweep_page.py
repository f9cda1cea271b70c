"""The phase diagram's page in headless Chromium."""

import pytest

from tests.browser.chromium import needs_chromium
from tests.sweeping.test_diagram import drawn

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    return drawn(tmp_path_factory.mktemp("sweep"))


def test_the_diagram_is_there_and_asks_for_nothing(page):
    assert page.locator("figure svg").is_visible() and page.asked == [page.url]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert "gap over beta and tokens" in page.locator("h1").inner_text() and page.troubles == []


def test_the_numbers_are_behind_it(page):
    page.locator("summary").click()
    assert page.locator("table.numbers tbody tr").count() == 30
