"""Filters of a sweep: small expressions over its axes, such as "beta * tokens <= 1e6 and seed < 3"."""

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from frostline.errors import BadSpec

LONGEST = 1000
"""Characters of a condition at most."""
DEEPEST = 50
"""Levels of nesting at most."""
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
ALLOWED = "numbers, texts, names of axes, + - * / %, comparisons, and, or, not, parentheses"
"""The parts of a condition, for messages."""
Values = Mapping[str, Any]
"""Values of the axes, by their names."""


def condition(text: str, names: Collection[str]) -> Callable[[Values], bool]:
    """The expression as a function of the axes' values; read, never executed as Python.

    >>> condition("beta * tokens <= 1e4 or seed == 0", ["beta", "tokens", "seed"])(dict(beta=5, tokens=100, seed=1))
    True
    """
    if len(text) > LONGEST:
        raise BadSpec(f"a condition of {len(text)} characters; {LONGEST} are enough.")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        value = _read(tree, text, set(names), 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, BadSpec):
            raise
        raise BadSpec(f"where = {text!r} cannot be read; a condition is made of {ALLOWED}.") from None

    def holds(values: Values) -> bool:
        try:
            return bool(value(values))
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            shown = ", ".join(f"{name} = {values[name]!r}" for name in names if name in text)
            reason = f"for {shown}: {error}" if shown else f": {error}"
            raise BadSpec(f"where = {text!r} cannot be decided {reason}.") from None

    return holds


def _read(node: ast.AST, text: str, names: set[str], depth: int) -> Callable[[Values], Any]:
    if depth > DEEPEST:
        raise BadSpec(f"where = {text!r} is nested too deeply.")

    def inside(part: ast.AST) -> Callable[[Values], Any]:
        return _read(part, text, names, depth + 1)

    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        constant = node.value
        return lambda values: constant
    if isinstance(node, ast.Name | ast.Attribute):
        name = ast.unparse(node)
        if name not in names:
            raise BadSpec(f"where = {text!r}: {name} is no axis; there are: {', '.join(sorted(names))}.")
        return lambda values: values[name]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        act, operand = _OPERATORS[type(node.op)], inside(node.operand)
        return lambda values: act(operand(values))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        act, left, right = _OPERATORS[type(node.op)], inside(node.left), inside(node.right)
        return lambda values: act(_number(left(values)), _number(right(values)))
    if isinstance(node, ast.BoolOp):
        parts, some = [inside(part) for part in node.values], any if isinstance(node.op, ast.Or) else all
        return lambda values: some(part(values) for part in parts)
    if isinstance(node, ast.Compare) and all(type(op) in _OPERATORS for op in node.ops):
        sides = [inside(part) for part in (node.left, *node.comparators)]
        acts = [_OPERATORS[type(op)] for op in node.ops]
        return lambda values: all(
            act(left(values), right(values)) for act, left, right in zip(acts, sides, sides[1:], strict=False)
        )
    raise BadSpec(f"where = {text!r} uses what is not allowed; a condition is made of {ALLOWED}.")


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value
