"""Digests of frostline's own source: results from different code get different digests."""

import ast
import hashlib
from collections.abc import Callable
from pathlib import Path

import frostline


def source_digest(counts: Callable[[tuple[str, ...]], bool]) -> str:
    """Digest of the source files that a result depends on; ``counts`` picks them by the parts of their paths.

    Of the syntax trees without docstrings: another comment, line break or sentence is no other code.
    """
    root = Path(frostline.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if counts(relative.parts):
            digest.update(relative.as_posix().encode())
            digest.update(code_of(path.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()


def code_of(source: str) -> str:
    """The syntax tree of some source, without docstrings and without places."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [part for part in node.body if not _is_docstring(part)]
    return ast.dump(tree)


def _is_docstring(node: ast.stmt) -> bool:
    """A string on its own: at the top of a function, or below a constant that it describes."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
