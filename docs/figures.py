"""make figures: the pictures of docs/ that no demo makes."""

from pathlib import Path

import numpy as np

import frostline as fl

cold = fl.Attention.from_matrices(B=np.diag([1.0, 0.5]), V=np.eye(2), beta=1000.0)
nodes = fl.sample.nodes(1000, 2)
run = fl.simulate(cold, nodes.tokens, weights=nodes.weights, until=20.0, save_at=np.linspace(0, 20, 41))
axes = fl.plot.distance(run, phases=fl.phases(run), certificate=fl.certificate(run), bound=fl.bound(cold))
axes.figure.savefig(Path(__file__).parent / "images" / "certificate.png", dpi=110, metadata={"Software": None})


def head(beta: float) -> fl.Attention:
    """That of docs/guides/bound.md."""
    return fl.Attention.from_matrices(B=np.diag([1.0, 0.5]), V=np.diag([1.0, 1.5]), beta=beta)


start = fl.sample.nodes(2000, 2, log_density=lambda x: x @ [0.36, 0.48])
leaving = fl.simulate(head(100.0), start.tokens, weights=start.weights, until=20.0, save_at=np.linspace(0, 20, 81))
axes = fl.plot.distance(
    leaving, phases=fl.phases(leaving), certificate=fl.certificate(leaving), bound=fl.bound(head(100.0))
)
axes.figure.savefig(Path(__file__).parent / "images" / "bound.png", dpi=110, metadata={"Software": None})


def screenshots() -> None:
    """The explorer, as docs/start.md shows it; with Debian's Chromium."""
    import shutil

    from playwright.sync_api import sync_playwright

    from frostline.exploring.app import Explorer, make_app
    from frostline.exploring.saved_folders import open_folder
    from frostline.web.request_limits import Limits
    from frostline.web.server import hosts_of, listen, make_server, url_of

    images, demo = Path(__file__).parent / "images", Path(__file__).parents[1] / "demo"
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no Chromium: the pictures of the explorer stay as they are")
        return
    for name, opened, where, ready in (
        ("explore", None, "", "() => run?.ended"),
        ("explore_audit", open_folder(demo / "audit"), "", "() => document.querySelectorAll('#text span').length > 3"),
    ):
        explorer = Explorer(opened)
        with listen("127.0.0.1", 0) as bound, sync_playwright() as playwright:
            server = make_server(make_app(explorer, hosts=hosts_of(bound)), Limits(), explorer.stop)
            with server.beside(bound):
                browser = playwright.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox"])
                page = browser.new_page(viewport={"width": 1360, "height": 800})
                page.goto(f"{url_of(bound)}/{where}")
                page.wait_for_function(ready, timeout=120_000)
                if opened is None:
                    page.evaluate("pause(true), go(32)")
                else:
                    page.locator("#layer").fill("5")
                page.wait_for_timeout(800)
                page.screenshot(path=images / f"{name}.png")
                browser.close()
        explorer.close()


screenshots()
