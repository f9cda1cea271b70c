"""The explorer in headless Chromium: sliders move the cloud, the overlay is the API's, links and exports come back."""

import re
import time
import tomllib
import zipfile
from xml.etree import ElementTree

import numpy as np
import pytest

import frostline as fl
from frostline.exploring.address import read, to_spec
from frostline.exploring.messages import FINEST
from frostline.exploring.saved_folders import open_folder
from frostline.runs import schema as specs
from frostline.runs.build import build_heads, build_stepper, build_tokens
from frostline.runs.directory import load_run
from frostline.runs.record import record
from tests.browser.chromium import needs_chromium
from tests.exploring.conftest import exploring
from tests.exploring.small_audit import write_audit

pytestmark = needs_chromium
SMALL = "n=300&until=3"
WIDE, PHONE = (1400, "light"), (390, "dark")


@pytest.fixture(scope="module")
def client():
    with exploring() as client:
        yield client


def opened(browser, url, look=WIDE, **more):
    width, scheme = look
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
    page.troubles, page.asked = [], []
    # A driver's remarks on its own speed are not ours.
    page.on("console", lambda message: "GL Driver" in message.text or page.troubles.append(message.text))
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(url)
    return page


@pytest.fixture
def visit(browser, client):
    pages = []

    def go(address="", look=WIDE):
        pages.append(opened(browser, f"{client.url}/{address}", look))
        return pages[-1]

    yield go
    for page in pages:
        page.close()


def until(page, condition, **more):
    # A function: the page's rules forbid to evaluate a string.
    page.wait_for_function(condition if "arg" in more else f"() => {condition}", timeout=60_000, **more)


def ended(page):
    until(page, "run?.ended && run.shown === run.frames.length - 1")


def slide(page, label, value):
    tell = "(own, value) => { own.value = value; own.dispatchEvent(new Event('input', { bubbles: true })) }"
    page.get_by_label(label, exact=True).evaluate(tell, value)


def cloud(page):
    return np.array(page.evaluate("Array.from(run.frames[run.shown].positions)"))


@pytest.mark.parametrize("look", [WIDE, PHONE], ids=["wide", "phone"])
def test_tokens_freeze_and_the_page_says_so(visit, client, look):
    page = visit(f"?{SMALL}&until=12", look)
    ended(page)
    for words in ("Inside the theory", "two antipodal points", "Concentration: t = 0", "Reached the final time"):
        until(page, "words => document.getElementById('words').innerText.includes(words)", arg=words)
    assert re.match(r"layer 120 of 120 · t = 12 · W = 0\.\d+", page.locator("#where").inner_text())
    assert page.locator("#chart .measured").count() == 1 and page.locator("#chart rect").count() >= 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.troubles == [] and all(url.startswith((client.url, "data:")) for url in page.asked)


def test_the_tube_is_drawn_beside_the_distance(visit):
    page = visit("?n=100&beta=100000&until=2")
    ended(page)
    until(page, "document.querySelectorAll('#chart .tube').length === 1")
    until(page, "words => document.getElementById('words').innerText.includes(words)", arg="Tube (eq. 20)")
    assert page.troubles == []


def test_a_tube_that_never_opens_is_said_and_not_drawn(visit):
    page = visit("?d=2&n=100&beta=1000&B=1,0.5&V=1,1.5&until=2")
    ended(page)
    until(page, "words => document.getElementById('words').innerText.includes(words)", arg="The tube never opens")
    until(page, "document.querySelectorAll('#chart .measured').length === 1")
    page.wait_for_timeout(400)  # The chart is drawn anew at most every 200 ms.
    assert page.locator("#chart .tube").count() == 0 and page.troubles == []


def test_the_picture_is_drawn_by_webgl_and_without_it(visit):
    for flat, name in (("", "WebGL"), ("#flat=1", "2D canvas")):
        page = visit(f"?{SMALL}{flat}")
        ended(page)
        assert page.evaluate("view.renderer.name") == name
        # Something coloured is on the canvas, inside the sphere.
        shot = page.evaluate(
            """() => { const copy = document.createElement("canvas"), own = view.canvas;
            copy.width = own.width; copy.height = own.height;
            const context = copy.getContext("2d"); context.drawImage(own, 0, 0);
            const { data } = context.getImageData(0, 0, own.width, own.height);
            return data.filter((value, k) => k % 4 === 3 && value > 60).length }"""
        )
        assert shot > 20, name


def test_the_overlay_is_the_limit_of_the_library(visit):
    for address in (SMALL, f"B=1,0.3,0.3&Bturn=35,20,0&{SMALL}", f"B=1,1,0.3&{SMALL}"):
        page = visit(f"?{address}")
        until(page, "run?.ready")
        spec = to_spec(read(address))
        x0, _ = build_tokens(spec)
        goal = np.array(page.evaluate("Array.from(run.goals)")).reshape(x0.shape)
        assert goal == pytest.approx(np.asarray(fl.limit(build_heads(spec))(x0)), abs=1e-6)


def test_moving_a_slider_moves_the_cloud_and_the_address(visit):
    page = visit(f"?{SMALL}")
    ended(page)
    before, stream = cloud(page), page.evaluate("run.since")
    slide(page, "beta, logarithmic", 0.5)
    until(page, "before => run.since > before && run.ended && run.shown === run.frames.length - 1", arg=stream)
    assert "beta=3.16" in page.url and np.abs(cloud(page) - before).max() > 1000
    spec = to_spec(read(page.url.partition("?")[2]))
    x0, _ = build_tokens(spec)
    run = fl.simulate(build_heads(spec), x0, until=spec.until, stepper=build_stepper(spec))
    assert cloud(page).reshape(x0.shape) / 32767 == pytest.approx(run.tokens[-1], abs=2e-5)


def test_a_link_brings_the_picture_back(visit):
    page = visit(f"?{SMALL}&B=1,0.7,0.2&Bturn=10,5,0")
    ended(page)
    page.locator("#globe").focus()
    page.keyboard.press("ArrowLeft")
    for _ in range(4):
        page.locator("#back").click()
    link = page.locator("#link").evaluate("e => e.href")
    assert "at=26" in link and "turn=" in link
    page.wait_for_url(link)
    other = visit(link.partition("/?")[2] and "?" + link.partition("/?")[2])
    until(other, "run?.ended")
    assert other.evaluate("[run.shown, playing]") == [26, False]
    assert (cloud(other) == cloud(page)).all()
    assert other.evaluate("Array.from(view.matrix)") == pytest.approx(
        page.evaluate("Array.from(view.matrix)"), abs=1e-4
    )


def test_sliders_and_typed_rows_say_the_same(visit):
    page = visit(f"?{SMALL}&B=1,0.5,0.2&Bturn=30,20,10")
    ended(page)
    before, stream = cloud(page), page.evaluate("run.since")
    page.locator("fieldset[data-matrix=B] button").click()
    until(page, "before => run.since > before && run.ended && run.shown === run.frames.length - 1", arg=stream)
    assert page.evaluate("setting.B.includes(';')")
    # A value that is no number stays among the sliders, with the sentence of the server.
    page.get_by_label("V: value 1, as a number").fill("x")
    page.locator("fieldset[data-matrix=V] button").click()
    until(page, "document.getElementById('trouble').textContent.includes(\"V holds 'x'\")")
    assert not page.evaluate("setting.V.includes(';')")
    page.get_by_label("V: value 1, as a number").fill("1")
    until(page, "document.getElementById('trouble').hidden && run.ended && run.shown === run.frames.length - 1")
    assert np.abs(cloud(page) - before).max() <= 2
    page.locator("fieldset[data-matrix=B] textarea").fill("1 0 0\n0 nan 0\n0 0 0.2")
    until(page, "!document.getElementById('trouble').hidden")
    assert "NaN" in page.locator("#trouble").inner_text()
    page.locator("fieldset[data-matrix=B] textarea").fill("1 0 0\n0 .5 0\n0 0 .2")
    until(page, "document.getElementById('trouble').hidden && run?.ended")


def test_keys_play_step_and_scrub(visit):
    page = visit(f"?{SMALL}")
    ended(page)
    page.locator("#globe").focus()
    for key, shown in ((",", 29), (",", 28), (".", 29), ("Home", 0), ("End", 30)):
        page.keyboard.press(key)
        assert page.evaluate("run.shown") == shown
    page.keyboard.press("Space")
    assert page.evaluate("playing") and page.evaluate("run.shown") < 30
    zoom, turn = page.evaluate("view.zoom"), page.evaluate("view.matrix[0]")
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("view.zoom") > zoom and page.evaluate("view.matrix[0]") != turn
    page.locator("#scrub").fill("7")
    assert page.evaluate("run.shown") == 7 and "layer 7 of 30" in page.locator("#where").inner_text()


def test_presets_are_there_and_play(visit):
    page = visit()
    until(page, "presets.length > 10 && run?.ready")
    page.locator("#presets").select_option("rotation")
    until(page, "run.ready && run.opening.limit?.kind === 'rotation'")
    assert "tips over" in page.locator("#watch").inner_text()
    until(page, "document.getElementById('legend').innerText.includes('No limit')")
    page.locator("#presets").select_option("finite-tokens")
    until(page, "document.getElementById('words').innerText.includes('Outside the theory')")


def test_exports_open(visit, tmp_path):
    page = visit(f"?{SMALL}")
    ended(page)
    for button, name in (
        ("#svg", "frostline.svg"),
        ("#png", "frostline.png"),
        ("#spec", "run.toml"),
        ("#zip", "run.zip"),
    ):
        with page.expect_download(timeout=60_000) as waiting:
            page.locator(button).click()
        assert waiting.value.suggested_filename == name
        waiting.value.save_as(tmp_path / name)
    drawn = ElementTree.parse(tmp_path / "frostline.svg").getroot()
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}circle")) >= 302
    assert (tmp_path / "frostline.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert specs.parse(tomllib.loads((tmp_path / "run.toml").read_text())) == to_spec(read(SMALL))
    zipfile.ZipFile(tmp_path / "run.zip").extractall(tmp_path)
    assert fl.load_run(tmp_path / "run").status == "finished"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("?n=100000000", "10 to 100,000 tokens"),
        ("?B=1,0;0", "takes 3 rows of 3"),
        ("?B=1,nan,0", "NaN"),
        ("?broken", "unknown key"),
        ("?n=%ff", "whole number"),
        ("?until=1e300", "until"),
        ("?d=2&B=" + "9" * 500, "characters"),
    ],
)
def test_broken_links_are_a_sentence_in_the_page(visit, address, said):
    page = visit(address)
    until(page, "!document.getElementById('trouble').hidden")
    assert said in page.locator("#trouble").inner_text()
    page.locator("#presets").select_option("first")
    until(page, "document.getElementById('trouble').hidden && run?.ready && run.frames.length > 5")


def test_two_tabs_and_a_server_that_goes_away(browser):
    with exploring() as client:
        first, second = (opened(browser, f"{client.url}/?{SMALL}&seed={seed}") for seed in (1, 2))
        ended(first)
        ended(second)
        assert (cloud(first) != cloud(second)).any()
        stream = first.evaluate("run.since")
        slide(first, "beta, logarithmic", 2.5)
        until(first, "before => run.since > before && run.ended", arg=stream)
        assert first.evaluate("setting.beta") == "316"
    first.locator("[name=seed]").fill("5")
    until(first, "!document.getElementById('trouble').hidden")
    assert "frostline explore" in first.locator("#trouble").inner_text()
    first.close()
    second.close()


def test_a_hundred_moves_leave_no_work_and_no_memory_behind(browser):
    with exploring() as client:
        page = opened(browser, f"{client.url}/?n=20000&until=40")
        until(page, "run?.ready")
        session = page.context.new_cdp_session(page)

        def held():
            session.send("HeapProfiler.collectGarbage")
            told = session.send("Runtime.getHeapUsage")
            # Frames are array buffers, which are not on the heap proper.
            return (told["usedSize"] + told["backingStorageSize"]) / 2**20

        def move(times):
            slider = page.get_by_label("B: value 2", exact=True)
            for k in range(times):
                slider.evaluate(
                    "(e, v) => { window.old = run; e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})) }",
                    0.2 + 0.005 * (k % 100),
                )
                page.wait_for_timeout(40 if k % 5 else 600)
            # The run of the last move begins a little later, and it is that one which is stopped.
            until(page, "run !== old && run.ready && run.frames.length >= 3")
            page.evaluate("run.stop.abort()")

        move(20)
        until_quiet(client)
        before = held()
        move(100)
        until_quiet(client)
        # A run that is held holds 0.5 MB at least, and there were twenty of them.
        assert held() < before + 4
        page.close()
        until_quiet(client)


def until_quiet(client):
    """No run is under way, and the thread that computes has nothing to do."""
    limit = time.monotonic() + 30
    explorer = client.explorer

    def left():
        return explorer.running + sum(pool._work_queue.qsize() for pool in (explorer._frames, explorer._predictions))

    while left() and time.monotonic() < limit:
        time.sleep(0.05)
    assert left() == 0


def test_playback_keeps_up(visit):
    """Frames that are there are shown, every one of them: none is skipped to keep time."""
    page = visit("?n=1000&until=10")
    ended(page)
    page.evaluate("run.drawn = 0; go(0); pause(false)")
    until(page, "run.shown === run.frames.length - 1")
    page.wait_for_timeout(200)
    assert page.evaluate("run.drawn") >= 100


@pytest.fixture
def audit(tmp_path):
    return open_folder(write_audit(tmp_path, sights=False))


def test_an_audit_is_scrubbed_and_pointed_at(browser, audit):
    with exploring(audit) as client:
        page = opened(browser, client.url)
        until(page, "document.querySelectorAll('#text span').length === 6")
        assert page.locator("#text").inner_text().split() == ["[CLS]", "the", "ice", "melts", "[SEP]"]
        page.locator("#layer").fill("1")
        assert "2 clusters" in page.locator("#seen").inner_text()
        assert "frozen from layer 1 on" in page.locator("#seen").inner_text()
        assert page.locator("#layername").inner_text() == "entering layer 1 of 0 to 1"
        page.locator("#colour").select_option("cluster")
        colours = page.evaluate(
            "Array.from(document.querySelectorAll('#text span'), e => e.style.getPropertyValue('--own'))"
        )
        assert colours[0] == colours[1] == colours[5] != colours[3] == colours[4]
        page.locator("#text span").nth(2).hover()
        assert page.locator("#text .hot").inner_text() == "ice"
        x, y, _ = page.evaluate("view.onScreen(view.spots, 3, 3)")
        box = page.locator("#cloud").bounding_box()
        page.mouse.move(box["x"] + x, box["y"] + y)
        assert page.locator("#text .hot").inner_text() == "melt"
        page.locator("#texts").select_option("1")
        page.locator("#layer").focus()
        page.keyboard.press("Home")
        page.keyboard.press(".")
        until(page, "location.hash === '#texts=1&layer=1&colour=cluster&frame=tokens'")
        again = opened(browser, page.url)
        until(again, "document.getElementById('layername').textContent.includes('entering layer 1')")
        assert again.locator("#texts").input_value() == "1" and again.locator("#colour").input_value() == "cluster"
        assert page.troubles == again.troubles == []
        again.close()
        page.close()


def test_a_run_directory_is_played(browser, tmp_path):
    spec = to_spec(read("n=400&until=6&step=0.5"))
    folder = record(spec, out=tmp_path / "mine").folder
    run = load_run(folder)
    with exploring(open_folder(folder)) as client:
        page = opened(browser, client.url)
        until(page, "run?.ended && run.shown === run.frames.length - 1")
        assert "The run in mine" in page.locator("#watch").inner_text()
        last = len(run.times) - 1
        assert f"saved time {last} of {last}" in page.locator("#where").inner_text()
        measured = page.evaluate("run.frames.map(frame => frame.w)")
        assert measured == pytest.approx(fl.distance_curve(run).upper.tolist())
        shown = np.array(page.evaluate("Array.from(run.frames.at(-1).positions)")).reshape(-1, 3) / FINEST
        assert shown == pytest.approx(run.tokens[-1], abs=1e-4)
        assert page.locator("#png").is_visible() and not page.locator("#presets").is_visible()
        with page.expect_download() as told:
            page.locator("#svg").click()
        assert told.value.path().read_text().startswith("<svg")
        assert page.troubles == []
        page.close()


def test_keys_are_the_players_except_where_a_slider_needs_them(visit):
    page = visit(f"?{SMALL}")
    ended(page)
    beta = page.get_by_label("beta, logarithmic", exact=True)
    beta.focus()
    page.keyboard.press(" ")
    until(page, "playing && run.shown < run.frames.length - 1")
    assert page.evaluate("scrollY") == 0
    page.keyboard.press("End")
    until(page, "setting.beta === '100000'")


def test_zoom_keeps_what_is_under_the_pointer_and_the_picture_can_be_moved(visit):
    page = visit(f"?{SMALL}&d=2")
    ended(page)
    box = page.locator("#globe").bounding_box()
    spot = (round(box["x"] + 0.8 * box["width"]), round(box["y"] + 0.3 * box["height"]))
    under = """([x, y]) => { const b = view.canvas.getBoundingClientRect(), side = Math.min(b.width, b.height);
        const away = [(x - b.left - b.width / 2) / side, (y - b.top - b.height / 2) / side];
        return away.map((v, k) => (v - view.shift[k]) / view.zoom) }"""
    before = page.evaluate(under, spot)
    page.mouse.move(*spot)
    page.mouse.wheel(0, -400)
    until(page, "view.zoom > 2")
    assert page.evaluate(under, spot) == pytest.approx(before, abs=1e-6)
    shift = page.evaluate("view.shift[0]")
    page.mouse.down()
    page.mouse.move(spot[0] - 100, spot[1])
    page.mouse.up()
    assert page.evaluate("view.shift[0]") == pytest.approx(shift - 100 / min(box["width"], box["height"]), abs=1e-6)
    until(page, "location.hash.includes('shift=')")
    again = visit(page.url.split("/", 3)[3])
    until(again, "run?.ready")
    assert again.evaluate("[view.zoom, ...view.shift]") == pytest.approx(
        page.evaluate("[view.zoom, ...view.shift]"), abs=2e-3
    )
    page.locator("#globe").focus()
    page.keyboard.press("0")
    assert page.evaluate("[view.zoom, ...view.shift]") == [1, 0, 0]


def test_who_has_paused_stays_at_that_time(visit):
    page = visit("?n=300&until=12")
    ended(page)
    page.evaluate("pause(true), go(100)")
    for label, value, text in (("until", "11", "t = 10"), ("stepper", "adaptive", "t = 10"), ("until", "5", "t = 5")):
        since = page.evaluate("run.since")
        field = page.locator(f"[name={label}]")
        field.select_option(value) if label == "stepper" else field.fill(value)
        until(page, "before => run.since > before && run.ended", arg=since)
        assert f"{text} " in page.locator("#where").inner_text().replace("10.04", "10")
        assert not page.evaluate("playing")


def test_a_refusal_leaves_the_picture(visit):
    page = visit(f"?{SMALL}")
    ended(page)
    before = cloud(page)
    page.locator("[name=beta]").fill("-")
    until(page, "!document.getElementById('trouble').hidden")
    assert (cloud(page) == before).all() and page.locator("#words").inner_text()
    page.locator("[name=beta]").fill("50")
    until(page, "document.getElementById('trouble').hidden && run.ended")


def test_matrices_as_people_write_them(visit):
    page = visit(f"?{SMALL}&B=1,0.2,0;0,1,0;0,0,0.5")
    ended(page)
    area = page.get_by_label("B, row by row")
    area.fill("[[1, 0.3, 0],\n [0, 1, 0],\n [0, 0, 0.5],]\n\n")
    until(page, "setting.B === '1,0.3,0;0,1,0;0,0,0.5'")
    page.locator("fieldset[data-matrix=B] button").click()
    until(page, "setting.B === '1,0.5,0.2'")
    page.locator("fieldset[data-matrix=B] button").click()
    until(page, "setting.B === '1,0.3,0;0,1,0;0,0,0.5'")
    # Once the sliders have moved, it is their matrix that is typed.
    page.locator("fieldset[data-matrix=B] button").click()
    slide(page, "B: value 1", 2)
    page.locator("fieldset[data-matrix=B] button").click()
    until(page, "setting.B === '2,0,0;0,0.5,0;0,0,0.2'")
    page.locator("[name=d]").select_option("2")
    until(page, "setting.B === '2,0;0,0.5'")
    page.locator("[name=n]").fill("1,000")
    until(page, "setting.n === '1000' && run.opening.tokens === 1000 && run.ended")
    assert page.locator("#trouble").is_hidden()


def test_going_where_nothing_is_yet(visit):
    page = visit("?n=5000&until=20")
    until(page, "run?.frames.length > 2")
    page.locator("#scrub").fill("180")
    assert page.evaluate("run.shown") < 180
    until(page, "run.shown === 180")
    assert not page.evaluate("playing")


def test_pictures_are_light_and_whole(visit):
    page = visit(f"?{SMALL}", PHONE)
    ended(page)
    text = page.evaluate("picture()")
    root = ElementTree.fromstring(text)
    assert (
        'fill="#ffffff"' in text and "#e3e9ee" not in text and not page.evaluate("document.documentElement.className")
    )
    words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert sum(word.endswith(" %") for word in words if word) == 2
    # The line below fits: 1240 wide, about 8 a letter.
    assert all(len(word) * 8 <= 1240 for word in words)


def test_a_phone_keeps_the_sphere_in_sight(visit):
    page = visit(f"?{SMALL}", PHONE)
    ended(page)
    page.get_by_label("beta, logarithmic", exact=True).scroll_into_view_if_needed()
    page.evaluate("document.querySelector('[data-matrix=V]').scrollIntoView()")
    box = page.locator("#globe").bounding_box()
    assert -1 <= box["y"] < 100 and box["height"] < 300
