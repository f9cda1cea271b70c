"""Sphinx: `make docs` builds these pages as a site, offline."""

from frostline import __version__

project, author, version = "frostline", "The frostline developers", __version__
extensions = ["myst_nb"]
html_theme = "furo"
html_static_path, html_css_files = ["static"], ["pages.css"]
html_title = f"frostline {__version__}"
exclude_patterns = ["_site", "_build"]
root_doc = "index"
myst_heading_anchors = 3
# Tutorials are stored without their output and run when the site is built; one that fails fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
# Fences say what tests do with them (sh background); to a reader all of them are sh.
suppress_warnings = ["misc.highlighting_failure", "myst.xref_missing", "mystnb.unknown_mime_type"]


def _plain_fences(app: object, name: str, source: list[str]) -> None:
    source[0] = source[0].replace("```sh background", "```sh").replace("```sh elsewhere", "```sh")


def setup(app: object) -> None:
    app.connect("source-read", _plain_fences)  # type: ignore[attr-defined]
