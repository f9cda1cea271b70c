"""The live page in headless Chromium: an alarm appears when shifted text is posted, and is over by the stated rule."""

import sqlite3

import pytest

from tests.browser.chromium import needs_chromium
from tests.monitoring import conftest as monitoring
from tests.monitoring.sentences import fresh
from tests.serving.conftest import serving
from tests.serving.test_app import STRANGE

base, folder = monitoring.base, monitoring.folder
pytestmark = needs_chromium
QUIET = 25


@pytest.fixture(params=[(1200, "light"), (390, "dark")], ids=["wide", "phone"])
def watched(request, browser, base, folder, tmp_path):
    width, scheme = request.param
    with serving(base, folder, tmp_path / "e.db", clear_after=QUIET, clear_seconds=0, false_alarm_every=1000) as client:
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.troubles, page.asked = [], []
        page.on("console", lambda message: page.troubles.append(message.text))
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(client.url)
        yield page, client
        page.close()


def says(page, words, *, where="#state"):
    page.wait_for_function(
        "([where, words]) => document.querySelector(where).innerText.includes(words)", arg=[where, words]
    )


def test_an_alarm_appears_and_is_over_by_the_stated_rule(watched):
    page, client = watched
    says(page, "Waiting")
    client.score(fresh(20))
    says(page, "All is well")
    assert page.locator("#points circle").count() == 20 and page.locator(".track").count() == 4
    client.score(STRANGE)
    says(page, "Alarm")
    says(page, f"after {QUIET} texts", where="#says")
    says(page, "make the baseline again", where="#advice")
    says(page, "σ", where="#events")
    assert page.title() == "ALARM · frostline"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    left = QUIET - client.service.stream.all.course.texts_since
    normal = fresh(60)[20:]
    client.score(normal[: left - 1])
    says(page, f"{20 + len(STRANGE) + left - 1}", where="#texts")
    assert page.locator("#state").inner_text() == "Alarm"
    client.score(normal[left - 1 : left])
    says(page, "All is well")
    says(page, "alarm over", where="#events")
    assert page.troubles == [] and all(url.startswith((client.url, "data:")) for url in page.asked)


def test_an_operator_silences_a_quiet_service_before_an_import(watched):
    page, client = watched
    client.score(fresh(3))
    says(page, "All is well")
    page.locator("#operate summary").click()
    assert (
        not page.locator("#whose, #control [value=acknowledge], #control [value=reset]").locator("visible=true").count()
    )
    page.fill("#who", "ada")
    page.fill("#why", "import")
    page.get_by_text("Silence for an hour").click()
    says(page, "Maintenance")
    says(page, "import (ada)", where="#says")
    page.get_by_text("End the silence").click()
    says(page, "All is well")
    assert [
        event["details"]["who"] for event in client.get("/events").json()["events"] if event["kind"] == "maintenance"
    ] == ["ada", "ada"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") and page.troubles == []


def test_names_of_clients_break_no_page(watched):
    page, client = watched
    markup = "<img src=x onerror=alert(1)>"
    for number, name in enumerate(["W" * 64, "\U0001f600" * 64, markup]):
        texts = [{"text": f"{text} {number}", "source": name, "id": "M" * 128} for text in STRANGE]
        assert client.post({"texts": texts}).status == 200
    says(page, markup, where="#sources")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("main img").count() == 0 and page.troubles == []


def test_events_that_were_edited_by_hand_break_no_page(watched, tmp_path):
    page, client = watched
    client.score(STRANGE[:1])
    with sqlite3.connect(tmp_path / "e.db") as file:
        for reasons in (
            "5",
            "[5]",
            '[{"part": "x", "sigma": NaN, "says": {}}]',
            '[{"part": "x", "sigma": null}]',
            '"a"',
        ):
            row = ("strange", 1e300, 1, f'{{"reasons": {reasons}}}')
            file.execute("INSERT INTO events (kind, time, texts, details) VALUES (?, ?, ?, ?)", row)
    says(page, "event 7", where="#events")
    assert page.locator("#events tr").count() == 7 and page.troubles == []


def test_pause_by_keyboard_and_a_lost_connection(watched):
    page, client = watched
    says(page, "Waiting")
    page.locator("#pause").focus()
    page.keyboard.press("Enter")
    client.score(fresh(5))
    page.wait_for_timeout(1500)
    assert page.locator("#texts").inner_text() == "0"
    page.keyboard.press("Enter")
    says(page, "5", where="#texts")
    client.service.draining = True
    says(page, "No connection")
    client.service.draining = False
    says(page, "All is well")


def test_a_token_is_asked_for_and_not_kept(browser, base, folder, tmp_path):
    token = "correct-horse-battery"
    with serving(base, folder, tmp_path / "e.db", token=token) as client:
        page = browser.new_page()
        page.goto(client.url)
        says(page, "Token, please")
        page.keyboard.type("wrong-horse-battery!")
        page.keyboard.press("Enter")
        says(page, "not the token")
        page.keyboard.type(token)
        page.keyboard.press("Enter")
        says(page, "Waiting")
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        page.close()


def test_the_description_is_a_page_too(watched):
    page, client = watched
    page.goto(f"{client.url}/docs")
    assert page.locator("section h2 code").count() == 8 and "curl" in page.locator("pre").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.troubles == []
