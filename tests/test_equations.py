"""Every row of docs/equations.md: its equation broken in a copy of the source, the test that it names is red."""

import re

import pytest

from tests.mutating import ROOT, copied, home, verdicts
from tests.mutations import ROWS

PAGE = (ROOT / "docs" / "equations.md").read_text()
NAMED = dict(re.findall(r"^\| (.+?) \|.*`(tests/[\w/.]+::\w+)` \|$", PAGE, flags=re.MULTILINE))
"""The test of each row, by its first column."""


def test_every_row_has_its_mutations_and_they_fit_the_source():
    assert set(ROWS) == set(NAMED)
    for row in ROWS.values():
        assert row.cases and row.changes
        for text, becomes in row.changes.items():
            assert home(text) and becomes != text


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("label", ROWS)
def test_the_named_test_is_red_without_its_equation(label, tmp_path):
    row = ROWS[label]
    copies = [copied(tmp_path / "as it is")]
    copies += [copied(tmp_path / str(number), *change) for number, change in enumerate(row.changes.items())]
    plain, *found = verdicts([NAMED[label] + case for case in row.cases], copies)
    assert plain == "green"
    assert dict(zip(row.changes, found, strict=True)) == dict.fromkeys(row.changes, "red")
