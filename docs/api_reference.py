"""Write docs/api.md from signatures and docstrings: python docs/api_reference.py"""

import ast
import inspect
import re
import textwrap
from functools import cache
from importlib import import_module
from pathlib import Path

import frostline

GROUPS = {
    "Heads and tokens": ["Attention", "Factored", "sample", "sphere"],
    "Prediction": ["tube", "limit", "zero_temperature", "rates", "bound", "terminal", "regime", "densities"],
    "Warm clouds": ["Cloud", "closure", "warm_limit", "moment_flow"],
    "Simulation": ["simulate", "Trajectory", "Euler", "RK4", "Adaptive", "Status", "mean_map"],
    "Runs on disk": ["Spec", "read_spec", "record", "load_run"],
    "Measurement": [
        "wasserstein",
        "Coupling",
        "sliced",
        "distance_curve",
        "phases",
        "Phase",
        "clusters",
        "certificate",
        "stability",
        "fit",
        "laplace",
        "laplace_growth",
    ],
    "Sweeps": ["sweep"],
    "Encoders": ["audit", "Finding", "diff"],
    "Monitoring": ["baseline", "load_baseline", "merge", "Scores", "Reason", "watch", "wrap"],
    "Progress, pictures and errors": ["Progress", "plot", "errors"],
}
LINE = 84


def reference() -> str:
    """The whole page."""
    parts = [
        "# API\n\nMade from signatures and docstrings by `make docs`; a test fails when they differ. `import frostline "
        "as fl`; arrays go in as numpy, torch or lists and come out as the same kind. THEORY, with a section or an "
        "equation, is [theory.md](theory.md).\n"
    ]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += module(name) if inspect.ismodule(getattr(frostline, name)) else entry(name)
    return "\n".join(parts)


def entry(name: str) -> list[str]:
    """A public function or class."""
    home = import_module(homes()[name])
    node = definition(home, name)
    found = described(f"fl.{name}", node, home)
    if (result := result_of(name)) is not None and first_verb(result) == name:
        found += described(f"→ fl.{result}", definition(home, result), home, level=4)
    return found


@cache
def homes() -> dict[str, str]:
    """Public names and the modules that define them, from the stub of the package."""
    stub = ast.parse(Path(frostline.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {
        alias.name: ".".join(filter(None, ("frostline", node.module)))
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def result_of(verb: str) -> str | None:
    """The public class that a verb returns, if it has no entry of its own."""
    returned = getattr(getattr(frostline, verb), "__annotations__", {}).get("return")
    name = getattr(returned, "__name__", None)
    return name if name in homes() and name not in {one for names in GROUPS.values() for one in names} else None


def first_verb(result: str) -> str:
    """The verb under which a result is described: the first that returns it."""
    return next(name for names in GROUPS.values() for name in names if result_of(name) == result)


def module(name: str) -> list[str]:
    """A public module: everything in it that is."""
    home = getattr(frostline, name)
    found = [f"### fl.{name}\n\n{(home.__doc__ or '').strip()}\n"]
    written = [node.name for node in tree(home).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    public = getattr(home, "__all__", [part for part in written if not part.startswith("_")])
    # Constants have no docstring.
    for part in [part for part in public if callable(getattr(home, part))]:
        found += described(f"fl.{name}.{part}", definition(home, part), home, level=4)
    return found


def tree(home: object) -> ast.Module:
    return ast.parse(Path(home.__file__).read_text(encoding="utf-8"))  # type: ignore[attr-defined]


def definition(home: object, name: str) -> ast.AST:
    """Where it is written: a package may only pass it on."""
    for node in tree(home).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            return definition(import_module(node.module or ""), name)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return definition(home, getattr(node.value, "id", ""))
    raise LookupError(name)


def described(title: str, node: ast.AST, home: object, level: int = 3) -> list[str]:
    found = [f"{'#' * level} {title}\n"]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    made = node if isinstance(node, ast.FunctionDef) else constructor(node)
    if made is not None and not title.startswith("→"):
        found.append(f"```text\n{signature(title, made, bound=made is not node)}\n```\n")
    found += paragraphs(ast.get_docstring(node) or "")
    if isinstance(node, ast.ClassDef):
        methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
        rows = []
        for method in methods:
            says = ast.get_docstring(method)
            if says and (not method.name.startswith("_") or method.name == "__call__"):
                own = method.name if _is_property(method) else signature(method.name, method, bound=True)
                own = own.replace("__call__", "", 1) if method.name == "__call__" else "." + own
                rows.append(f"- `{' '.join(own.split())}`: {' '.join(says.split(chr(10) * 2)[0].split())}")
        if rows:
            found.append("\n".join(rows) + "\n")
    return found


def constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    found = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    return found[0] if found else None


def _is_property(method: ast.FunctionDef) -> bool:
    return any(
        getattr(one, "id", getattr(one, "attr", "")) in ("property", "cached_property") for one in method.decorator_list
    )


def signature(title: str, node: ast.FunctionDef, *, bound: bool = False) -> str:
    arguments = node.args
    own = bound and not any(getattr(one, "id", "") == "staticmethod" for one in node.decorator_list)
    if own:
        arguments = ast.arguments(
            arguments.posonlyargs,
            arguments.args[1:],
            arguments.vararg,
            arguments.kwonlyargs,
            arguments.kw_defaults,
            arguments.kwarg,
            arguments.defaults,
        )
    text = f"{title}({ast.unparse(arguments)})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")
    text = text.replace("'", "") if "Float[" in text else text
    return (
        text
        if len(text) <= LINE
        else "\n".join(textwrap.wrap(text, LINE, subsequent_indent="    ", break_long_words=False))
    )


def paragraphs(text: str) -> list[str]:
    """Prose as prose; numpy sections as lists; aligned lists and examples as blocks."""
    lines: list[str] = []
    for part in text.strip().split("\n\n"):
        title, *rest = part.split("\n")
        if rest and set(rest[0]) == {"-"}:
            lines.append(f"**{title}**\n")
            title, *rest = rest[1:]
            part = "\n".join([title, *rest])
        if part.lstrip().startswith(">>>"):
            lines.append(f"```pycon\n{textwrap.dedent(part)}\n```\n")
        elif any(line.startswith("    ") for line in rest) and not title.startswith(" "):
            lines.append("\n".join(items(part)) + "\n")
        elif re.search(r"^\S+(, \S+)*(  +)\S", part, flags=re.M):
            lines.append(f"```text\n{part}\n```\n")
        else:
            lines.append(prose(part) + "\n")
    return lines


def items(part: str) -> list[str]:
    """Entries of a numpy section, as a list: ``name : type`` and the indented words below it."""
    entries: list[list[str]] = []
    for line in part.split("\n"):
        if line.startswith("    ") and entries:
            entries[-1].append(line.strip())
        else:
            entries.append([line.strip()])
    return [f"- `{name}`: {prose(' '.join(words))}" if words else f"- `{name}`" for name, *words in entries]


def prose(text: str) -> str:
    return text.replace("``", "`").replace("<", "&lt;")


if __name__ == "__main__":
    Path(__file__).with_name("api.md").write_text(reference(), encoding="utf-8")
