"""Shapes in signatures are checked: the first calls of a function in every test, and then one in fifty."""

import jaxtyping
import numpy as np
import pytest

from frostline.theory.spectrum import scale_of
from typechecking import FIRST_CALLS, THEN_EVERY

RIGHT, WRONG = np.ones((2, 3)), np.ones(3)


@pytest.mark.parametrize("again", [1, 2])
def test_every_one_of_the_first_calls_is_checked(again):
    """In every test anew."""
    for _ in range(FIRST_CALLS):
        with pytest.raises(jaxtyping.TypeCheckError):
            scale_of(WRONG)


def test_then_one_in_ten_is():
    for _ in range(FIRST_CALLS):
        scale_of(RIGHT)
    refused = 0
    for _ in range(3 * THEN_EVERY):
        try:
            scale_of(WRONG)
        except jaxtyping.TypeCheckError:
            refused += 1
    assert refused == 3
