"""Write the table of rooms in CONTRIBUTING.md from the list of imports: python docs/rooms_table.py"""

import ast
from collections.abc import Iterator
from pathlib import Path

import frostline
from frostline.rooms import ROWS

PACKAGE = Path(frostline.__file__).parent
CONTRIBUTING = Path(__file__).parent.parent / "CONTRIBUTING.md"
BEGIN, END = "<!-- rooms: made by `make docs` -->\n", "<!-- end of rooms -->\n"


def table() -> str:
    """The lines between the marks: a row per room, and below it one per file, with the first line of its docstring."""
    lines = ["| file | what it is |", "|---|---|"]
    for row in ROWS:
        for room, holds in row.items():
            if (PACKAGE / room).is_dir():
                lines.append(f"| **{room}/** | **{holds}** |")
                lines += [f"| {'&nbsp;' * 4}`{name}` | {line} |" for name, line in files(PACKAGE / room)]
            else:
                lines.append(f"| `{room}.py` | {first_line(PACKAGE / f'{room}.py')} |")
    return "\n".join(lines) + "\n"


def files(folder: Path) -> Iterator[tuple[str, str]]:
    """The modules of a room, subfolders after the files."""
    for path in sorted(folder.rglob("*.py"), key=lambda path: (len(path.parts), path)):
        if path.name != "__init__.py":
            yield path.relative_to(folder).as_posix(), first_line(path)


def first_line(path: Path) -> str:
    """The first sentence of a module's docstring, on one line."""
    words = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split())
    return words.replace("|", "\\|")


def filled(page: str) -> str:
    """The page with the table as it should be."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    CONTRIBUTING.write_text(filled(CONTRIBUTING.read_text(encoding="utf-8")), encoding="utf-8")
