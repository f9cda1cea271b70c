"""Nothing that a file says is obeyed by a terminal: escapes in errors, in sentences and in JSON."""

import json
import pickle

import pytest

from frostline import errors
from frostline.cli import options
from frostline.printable import printable, printable_json

HOSTILE = "a\x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe\u2069 \x00\x7f\u200b\ud800\r\nfrostline: fine"


def shown(text):
    return all(one.isprintable() for one in text)


def test_what_a_terminal_would_obey_is_escaped():
    assert shown(printable(HOSTILE)) and printable(HOSTILE).startswith(
        "a\\x1b[31mred\\x1b]0;title\\x07 \\x9b2J \\u202eg"
    )
    assert printable("β(xᵀBy) ≤ ½ – 水冰\u00a0§") == "β(xᵀBy) ≤ ½ – 水冰\u00a0§"
    assert printable(printable(HOSTILE)) == printable(HOSTILE)


def test_json_says_the_same_after_escaping():
    text = json.dumps({HOSTILE: [HOSTILE, "水\U000e0041"]}, indent=2, ensure_ascii=False)
    safe = printable_json(text)
    assert json.loads(safe) == json.loads(text) and shown(safe.replace("\n", "")) and "水" in safe


@pytest.mark.parametrize(
    "kind", [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)]
)
def test_messages_of_errors_are_one_printable_line(kind):
    error = kind(HOSTILE)
    assert shown(str(error)) and shown(str(pickle.loads(pickle.dumps(error)))) and str(kind()) == ""


def test_what_the_command_says_is_printable(capsys):
    options.say(f"scores texts of {HOSTILE}", hang=0)
    options.print_json({"model": HOSTILE})
    said = capsys.readouterr().out
    assert shown(said.replace("\n", "")) and "\\x1b[31m" in said and "\\u001b[31m" in said
