"""Digests of source: code counts, words do not."""

import pytest

from frostline.files.digests import code_of, source_digest

SOURCE = '''"""A module."""
LIMIT = 3
"""Its unit."""


def half(x):
    """A half."""
    return x / 2
'''


@pytest.mark.parametrize(
    "old, new", [("A half.", "One half of x."), ("Its unit.", "m"), ("\n\n\n", "\n# why\n"), (" / ", "/")]
)
def test_words_comments_and_spaces_do_not_count(old, new):
    assert SOURCE.replace(old, new) != SOURCE and code_of(SOURCE.replace(old, new)) == code_of(SOURCE)


@pytest.mark.parametrize(
    "old, new", [("/ 2", "/ 3"), ("LIMIT = 3", "LIMIT = 4"), ("def half", "def other"), ("(x)", "(x, y=1)")]
)
def test_code_counts(old, new):
    assert code_of(SOURCE.replace(old, new)) != code_of(SOURCE)


def test_only_the_files_that_count_are_in_it():
    everything, theory = source_digest(lambda parts: True), source_digest(lambda parts: parts[0] == "theory")
    assert everything != theory == source_digest(lambda parts: parts[0] == "theory")
