"""Documentation that cannot lie: the README's code runs, the CLI reference is the help, examples work."""

import contextlib
import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import frostline
from frostline.runs import schema as specs
from frostline.runs.build import build_heads, build_tokens
from frostline.sweeping import plan as plans
from tests import pages

ROOT = Path(__file__).parents[1]


def test_the_cli_reference_is_the_help():
    module = runpy.run_path(str(ROOT / "docs" / "cli_reference.py"))
    assert (ROOT / "docs" / "cli.md").read_text() == module["reference"](), "run: make docs"


def test_the_table_of_rooms_is_the_list_that_imports_are_tested_with():
    module = runpy.run_path(str(ROOT / "docs" / "rooms_table.py"))
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert page == module["filled"](page), "run make docs"


def test_the_api_reference_is_the_docstrings():
    module = runpy.run_path(str(ROOT / "docs" / "api_reference.py"))
    assert (ROOT / "docs" / "api.md").read_text() == module["reference"](), "run: make docs"
    told = {name for names in module["GROUPS"].values() for name in names}
    assert told | {module["result_of"](name) for name in told} - {None} == set(frostline.__all__)


def test_every_public_name_is_in_the_api_reference():
    titles = re.findall(
        r"^#{3,4} (?:→ )?fl\.(\w+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), flags=re.M
    )
    assert set(frostline.__all__) - set(titles) == set()


@pytest.mark.parametrize("page", pages.PAGES)
def test_every_block_is_of_a_kind_that_is_run(page):
    assert pages.kinds(page) <= {"python", "toml", "promql", "text", "sh", "sh background", "sh elsewhere", "{toctree}"}
    for info, text in pages.blocks(page):
        assert info != "sh elsewhere" or any(text.startswith(begin) for begin in pages.ELSEWHERE), text
        # What is text is output, not code in disguise.
        assert info != "text" or not re.search(r"^(import|from) ", text, flags=re.M)


def needs_sandbox(page):
    return bool(pages.kinds(page) & {"sh", "sh background"})


@pytest.mark.parametrize(
    "page", [page for page in pages.PAGES if "python" in pages.kinds(page) and not needs_sandbox(page)]
)
def test_python_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for info, text in pages.blocks(page):
        if info == "python":
            exec(text, namespace)
    assert {"fl", "np"} & set(namespace)


def test_python_of_the_readme_runs(tmp_path, monkeypatch):
    """The rest of it takes minutes: see below."""
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for text in [text for info, text in pages.blocks("README.md") if info == "python"]:
        exec(text, namespace)
    assert namespace["run"].status == "finished" and len(namespace["axes"]) == 4


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A small encoder under the names that pages give theirs, and one that was tuned."""
    import torch

    from tests.encoders import tiny

    folder = tmp_path_factory.mktemp("models")
    base = tiny.save(tiny.model("BERT", spread=0.1, settings=tiny.literate()), folder / "base", letters=True)
    tuned = tiny.model("BERT", spread=0.1, settings=tiny.literate())
    with torch.no_grad():
        next(tuned.encoder.layer[0].parameters()).add_(0.01)
    changed = tiny.save(tuned, folder / "tuned", letters=True)
    names = {"model": base, "all-MiniLM-L6-v2": base, "base": base, "tuned": changed}
    return names | {"checkpoints/checkpoint-500": base, "checkpoints/checkpoint-1000": changed}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")  # of other packages, in what pages do with them
@pytest.mark.parametrize("page", [page for page in pages.PAGES if needs_sandbox(page)])
def test_the_page_works_as_written(page, models, tmp_path):
    from tests.monitoring.sentences import fresh, sentences

    texts = {
        "normal.txt": sentences(600, seed=0),
        "today.txt": fresh(60),
        "corpus.txt": fresh(90)[60:],
        "usual.txt": fresh(120)[90:],
    }
    texts |= {"january.txt": sentences(600, seed=1), "february.txt": sentences(600, seed=2)}
    serves = "sh background" in pages.kinds(page)
    with pages.one_at_a_time() if serves else contextlib.nullcontext():
        sandbox = pages.Sandbox(tmp_path / "copy", models, texts)
        try:
            run = [info for info, text in pages.blocks(page) if sandbox.run(info, text)]
            assert "sh" in run
        finally:
            sandbox.close()
        if page == "docs/start.md":
            pictures_are_those_of_the_page(tmp_path / "copy")


def pictures_are_those_of_the_page(folder):
    """What a stranger has made looks like what the page shows."""
    import matplotlib.image as images

    for shown, made in (("two_clusters", "demo/two_clusters/tokens.png"), ("cold", "cold/distance.png")):
        one, other = (images.imread(path)[..., :3] for path in (ROOT / f"docs/images/{shown}.png", folder / made))
        assert one.shape == other.shape and abs(one - other).mean() < 0.02, made
    assert (folder / "demo" / "audit" / "index.html").exists() and (folder / "demo" / "audit" / "scenes.json").exists()


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.name)
def test_tutorials_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = json.loads(path.read_text())
    assert told["nbformat"] == 4 and all(not cell.get("outputs") for cell in told["cells"])
    namespace = {}
    for cell in told["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), namespace)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_is_built_offline_with_pictures(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", ROOT / "docs", tmp_path / "site" / "html"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    for path in TUTORIALS:
        page = (tmp_path / "site" / "html" / "tutorials" / path.name).with_suffix(".html").read_text()
        assert path.stem == "encoder" or re.search(r"<img[^>]+_images/", page), path.name
    html = tmp_path / "site" / "html"
    assert (html / "search.html").exists() and '"gallery"' in (html / "searchindex.js").read_text()
    assert len(re.findall(r"<img[^>]+_images/gallery_\w+\.png", (html / "gallery.html").read_text())) == 4
    assert len(list(html.glob("_downloads/*/phase_diagram.html"))) == 1
    # Nothing is fetched from elsewhere when a page is opened.
    for page in html.rglob("*.html"):
        assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=.(?:https?:)?//[^>]+>", page.read_text()), page


def test_the_gallery_is_small_and_of_pages_that_the_demo_makes():
    pictures = sorted((ROOT / "docs" / "images").glob("gallery_*.png"))
    shown = re.findall(r"images/(gallery_\w+\.png)", (ROOT / "docs" / "gallery.md").read_text())
    assert sorted(shown) == [path.name for path in pictures] and all(path.stat().st_size < 150_000 for path in pictures)
    text = (ROOT / "docs" / "static" / "phase_diagram.html").read_text()
    assert len(text) < 60_000 and not re.findall(r"(?:src|href)=.(?:https?:)?//", text)
    demo = (ROOT / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]
    for path in re.findall(r'DEMO((?: / "[^"]+")+)', (ROOT / "docs" / "gallery.py").read_text()):
        assert "demo/" + re.findall(r'"([^"]+)"', path)[0] in demo


def test_specs_on_the_page_parse():
    found = [text for info, text in pages.blocks("docs/runs.md") if info == "toml"]
    assert found
    for block in found:
        build_heads(specs.parse(tomllib.loads(block)))


def test_the_sweep_on_the_page_is_one():
    ((_, text),) = [block for block in pages.blocks("docs/sweeps.md") if block[0] == "toml"]
    assert plans.parse(tomllib.loads(text)).count() > 100


def test_thresholds_on_the_page_are_read(tmp_path):
    from frostline.auditing.ci_thresholds import read_thresholds
    from frostline.auditing.metric_names import CHANGE_METRICS, TEXT_METRICS, WEIGHT_METRICS

    ((_, text),) = [block for block in pages.blocks("docs/audit.md") if block[0] == "toml"]
    (tmp_path / "limits.toml").write_text(text)
    assert len(read_thresholds(tmp_path / "limits.toml", (*WEIGHT_METRICS, *TEXT_METRICS, *CHANGE_METRICS))) == 2


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no Prometheus on this machine")
def test_queries_on_the_page_are_queries(tmp_path):
    ((_, text),) = [block for block in pages.blocks("docs/serving.md") if block[0] == "promql"]
    rules = [{"record": f"page:{n}", "expr": line} for n, line in enumerate(text.strip().splitlines())]
    (tmp_path / "page.yml").write_text(json.dumps({"groups": [{"name": "page", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", tmp_path / "page.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", pages.PAGES)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        # m_β[ρ](x) is a formula.
        if not target.startswith("http") and ("." in target or "/" in target):
            assert ((ROOT / page).parent / target).exists(), target


def test_every_equation_has_code_and_a_test():
    theory, table = (ROOT / "docs" / "theory.md").read_text(), (ROOT / "docs" / "equations.md").read_text()
    numbered = set(re.findall(r"^ {4}.*\((\d+′?)\)(?:\s+\S.*)?$", theory, flags=re.M))
    rows = re.findall(r"^\| \((\d+′?)\) \|", table, flags=re.M)
    assert set(rows) == numbered and len(rows) == len(numbered) >= 17
    for code in re.findall(r"`(frostline\.[\w.]+)`", table):
        home, _, name = code.rpartition(".")
        assert hasattr(import_module(home), name), code
    for path, name in re.findall(r"`(tests/[\w/.]+)::(\w+)`", table):
        assert f"def {name}(" in (ROOT / path).read_text(), name


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_examples_build(path):
    asked = tomllib.loads(path.read_text())
    # Of a sweep the first run stands for all.
    table = next(plans.parse(asked).runs()).table if "axes" in asked else asked
    spec = specs.parse(table)
    assert build_heads(spec) and len(build_tokens(spec)[0]) > 0


def test_every_equation_a_docstring_cites_is_on_the_theory_page():
    page = (ROOT / "docs" / "theory.md").read_text()
    cited = set()
    for path in (ROOT / "src").rglob("*.py"):
        cited |= set(re.findall(r"THEORY eq\. (\d+′?)", path.read_text()))
    assert cited
    for number in cited:
        assert f"({number})" in page, number


def test_the_changelog_names_this_version():
    import frostline

    assert f"## {frostline.__version__}" in (ROOT / "CHANGELOG.md").read_text()
