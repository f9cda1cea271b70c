"""One browser for all pages, and a page that remembers what it complained about and what it asked for."""

import pytest

from tests.browser.chromium import PATH


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PATH, args=["--headless", "--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=[(1200, "light"), (390, "dark")], ids=["wide", "phone"])
def page(browser, page_file, request):
    width, scheme = request.param
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.troubles, page.asked = [], []
    page.on("console", lambda message: page.troubles.append(message.text))
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(page_file.as_uri())
    yield page
    page.close()
