"""Phase diagrams: cells, what is in them, and what cannot be drawn."""

import numpy as np
import pyarrow as pa
import pytest

from frostline.errors import BadParameter
from frostline.sweeping.dataset import Dataset
from frostline.sweeping.diagram import draw, make_diagram, write_diagram
from frostline.sweeping.kinds import KINDS
from tests.sweeping.test_dataset import row


def table(**columns):
    count = len(next(iter(columns.values())))
    return pa.table({"status": ["done"] * count} | columns)


def test_cells_are_medians_and_say_how_many_runs_they_are_of():
    found = make_diagram(
        table(beta=[1.0, 1.0, 1.0, 10.0], tokens=[5, 5, 5, 5], plateau=[1.0, 2.0, 9.0, None]),
        x="beta",
        y="n",
        color="plateau",
    )
    assert found.xs == (1.0, 10.0) and found.ys == (5,) and found.runs.tolist() == [[3, 1]]
    assert found.values[0, 0] == 2.0 and np.isnan(found.values[0, 1]) and found.seen.tolist() == [[3, 0]]
    assert "1 of them have none" in found.describe()
    assert "median" in found.describe() and draw(found) is not None


def test_texts_are_the_most_frequent():
    found = make_diagram(table(x=[1, 1, 1], y=[1, 1, 1], regime=["in", "out", "in"]), x="x", y="y", color="regime")
    assert found.values[0, 0] == "in" and "most frequent" in found.describe()


def test_failed_runs_are_crosses_not_values():
    marked = pa.table({"status": ["done", "failed"], "x": [1, 2], "y": [1, 1], "v": [1.0, None]})
    found = make_diagram(marked, x="x", y="y", color="v")
    assert found.failed.tolist() == [[0, 1]] and found.runs.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"x": "bta", "y": "n", "color": "v"}, "did you mean 'beta'"),
        ({"x": "beta", "y": "beta", "color": "v"}, "both beta"),
        ({"x": "beta", "y": "n", "color": "many"}, "is a list"),
        ({"x": "beta", "y": "n", "color": "none"}, "nothing to draw"),
        ({"x": "long", "y": "n", "color": "v"}, "300 different values"),
        ({"x": "beta", "y": "n", "color": "words"}, "300 different texts"),
    ],
)
def test_what_cannot_be_drawn_is_said(asked, said):
    n = 300
    given = table(
        beta=[float(k % 10) for k in range(n)],
        tokens=[k // 10 for k in range(n)],
        v=[1.0] * n,
        none=pa.array([None] * n, pa.float64()),
        many=[[1.0]] * n,
        long=list(range(n)),
        words=[f"w{k}" for k in range(n)],
    )
    with pytest.raises(BadParameter, match=said):
        draw(make_diagram(given, **asked))


def test_texts_that_look_like_mathematics_are_drawn(tmp_path):
    given = table(x=["a$x_{$b", "\x07bell", "path/" * 30], y=[1, 2, 3], v=["$", "<script>", "^"])
    draw(make_diagram(given, x="x", y="y", color="v")).savefig(tmp_path / "found.svg")
    assert "<script>" not in (tmp_path / "found.svg").read_text()


def test_numbers_that_are_too_large_are_said():
    with pytest.raises(BadParameter, match="too large to draw"):
        draw(make_diagram(table(x=[1, 2], y=[1, 1], v=[-1.7e308, 1.7e308]), x="x", y="y", color="v"))


def test_a_column_of_that_name_comes_before_a_short_name():
    given = table(t=[1.0, 2.0], until=[5.0, 6.0], y=[1, 1], v=[1.0, 2.0])
    assert make_diagram(given, x="t", y="y", color="v").xs == (1.0, 2.0)


def drawn(folder):
    """A page of thirty runs, one of which failed."""
    out = folder / "runs"
    with Dataset(out, KINDS["theory"]) as data:
        for number in range(30):
            wrong = number == 7
            about = {
                "beta": float(10 ** (number % 6)),
                "tokens": 10 * (number // 6),
                "gap": None if wrong else 0.1 * number,
            }
            data.add(row(number, "failed" if wrong else "done") | about)
    return write_diagram(out, x="beta", y="n", color="gap")


def test_the_page_has_its_picture_beside_it(tmp_path):
    page = drawn(tmp_path)
    assert page.name == "_diagram-beta-tokens-gap.html"
    assert page.with_suffix(".svg").read_text().lstrip().startswith("<?xml")
    assert page.with_suffix(".png").stat().st_size > 5000
    text = page.read_text()
    assert "29 runs over 6 values of beta" in text and "1 run failed" in text
    assert "how far the leading eigenvalue" in text
