"""The run-time type checker of the tests: beartype, where an int is a float as the type system says.

Checking the shapes of a call takes longer than many a function does. In every test the first calls of each function are
checked, and then one in fifty: the thousand calls of an inner loop have the shapes of the first.
"""

import functools
import inspect

import jaxtyping
from beartype import BeartypeConf, beartype

typechecker = beartype(conf=BeartypeConf(is_pep484_tower=True))

FIRST_CALLS = 10
"""Calls of a function that are all checked, anew in every test."""
THEN_EVERY = 50
"""Of the calls after those, one in so many is checked."""

_every_call = jaxtyping.jaxtyped
_tests = 0


def begin_test():
    """Check the first calls of every function again."""
    global _tests
    _tests += 1


def of_some_calls(function=None, *, typechecker):
    """``jaxtyping.jaxtyped``, for functions on some of their calls only; for classes it is what it was."""
    if function is None:
        return functools.partial(of_some_calls, typechecker=typechecker)
    checked = _every_call(function, typechecker=typechecker)
    if not inspect.isfunction(function):
        return checked
    test, calls = -1, 0

    @functools.wraps(function)
    def call(*args, **kwargs):
        nonlocal test, calls
        if test != _tests:
            test, calls = _tests, 0
        calls += 1
        if calls <= FIRST_CALLS or calls % THEN_EVERY == 0:
            return checked(*args, **kwargs)
        return function(*args, **kwargs)

    return call


# The import hook looks this name up in every module that it instruments.
jaxtyping.jaxtyped = of_some_calls
