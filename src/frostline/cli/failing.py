"""Failures of commands: one sentence on stderr (and as JSON where asked), and an exit code that scripts can use."""

import errno
import functools
import io
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from frostline.printable import printable, printable_json

ANSWER_NO = 1
"""Exit code of a command whose answer is "no": a claim failed, an alarm rang, a threshold was broken."""
BAD_INPUT = 2
"""Exit code of a command that cannot be carried out."""
INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM."""
RESUMED = ("simulate", "sweep", "reproduce")
"""Commands that go on where they stopped when they are called again."""


def with_sentences(command: Callable[..., None]) -> Callable[..., None]:
    """A command that fails with a sentence and one of the exit codes above.

    Wraps the command itself, since typer would hide Ctrl-C.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **keywords: Any) -> None:
        as_json = bool(keywords.get("json"))
        # SIGTERM is treated like Ctrl-C: finished work is kept.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # Characters that the terminal cannot show are replaced: they are no reason to fail.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            command(*args, **keywords)
            # Flushed here, where a full disk can still be reported.
            if sys.stdout is not None:
                sys.stdout.flush()
        except KeyboardInterrupt:
            goes_on = " the same command goes on where this one stopped." if command.__name__ in RESUMED else ""
            _fail(f"interrupted;{goes_on}" if goes_on else "interrupted.", INTERRUPTED, as_json)
        except BrokenPipeError:
            # The reader of the output has gone (… | head): nothing is wrong, and nothing more can be printed.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except MemoryError:
            _fail("not enough memory for this; take fewer tokens or fewer saved times.", BAD_INPUT, as_json)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                again = " and give the same command again: it goes on" if command.__name__ in RESUMED else ""
                _fail(f"the disk is full; free some space{again}.", BAD_INPUT, as_json)
            _fail(f"{error.filename or 'a file'}: {error.strerror}.", BAD_INPUT, as_json)
        except ValueError as error:
            # Sentences of frostline are for users; any other ValueError is a defect and shows its trace.
            from frostline.errors import FrostlineError

            if not isinstance(error, FrostlineError):
                raise
            _fail(str(error), BAD_INPUT, as_json)

    return wrapped


def _fail(sentence: str, code: int, as_json: bool) -> NoReturn:
    try:
        if as_json:
            print(printable_json(json.dumps({"error": sentence}, ensure_ascii=False)), flush=True)
    except OSError:
        # It may be stdout that cannot be written to; stderr gets the sentence anyway.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if sys.stderr is not None:
        print(f"frostline: {printable(sentence)}", file=sys.stderr)
    sys.exit(code)
