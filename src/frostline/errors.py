"""Named failures that advise. Every bad-input error is a ValueError whose message is one readable sentence."""

from frostline.printable import printable


class FrostlineError(ValueError):
    """Bad input: the message says what is wrong, with which numbers, and what to do.

    Messages quote names from files, so that they are made printable here, for every reader of them.
    """

    def __init__(self, *said: object):
        super().__init__(*(printable(one) if isinstance(one, str) else one for one in said))


class BadArray(FrostlineError):
    """An array has the wrong shape, dtype or entries."""


class OffSphere(FrostlineError):
    """Tokens are not unit vectors."""


class BadWeights(FrostlineError):
    """Token weights are empty, negative, not finite, or do not sum to one."""


class BadParameter(FrostlineError):
    """A scalar setting (beta, step, until, tolerance, a name) is outside its range."""


class NoLimit(FrostlineError):
    """The spectrum of A = VBᵀ gives tokens no zero-temperature limit."""


class BadSpec(FrostlineError):
    """A spec file is not what the command can read."""


class BadRun(FrostlineError):
    """A run directory is missing, truncated, locked, or made from another spec."""


class BadModel(FrostlineError):
    """A model cannot be read, is not covered by the theory, or was not extracted faithfully."""


class BadText(FrostlineError):
    """A text file, or what the tokenizer makes of it, cannot be used."""


class BadBaseline(FrostlineError):
    """A .frost file is damaged, newer, or of another model or tokenizer."""


class BadCluster(FrostlineError):
    """A scheduler that does not answer, or workers that cannot be used."""


class MissingExtra(FrostlineError):
    """A package of an extra is not installed; the message has the line to type."""
