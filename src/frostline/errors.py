"""Errors about bad input: every one is a ValueError whose message says what is wrong and what to do."""

from collections.abc import Sequence

from frostline.printable import printable


class FrostlineError(ValueError):
    """Bad input; the base class of all errors that frostline raises on purpose.

    The message says what is wrong, with which numbers, and what to do. Messages quote names from files, so they are
    made printable here, for every reader of them.

    Examples
    --------
    >>> import frostline as fl
    >>> try:
    ...     fl.Attention.from_matrices([[1.0, 0.0], [0.0, 0.5]], [[1.0, 0.0], [0.0, 1.0]], beta=-1.0)
    ... except fl.errors.FrostlineError as error:
    ...     print(error)
    beta is -1; it must be finite and > 0.
    """

    def __init__(self, *arguments: object):
        super().__init__(*(printable(part) if isinstance(part, str) else part for part in arguments))


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
    """A spec file has an unknown key, or a value that the command cannot use."""


class BadRun(FrostlineError):
    """A run directory is missing, truncated, locked, or made from another spec."""


class BadModel(FrostlineError):
    """A model cannot be read, is not covered by the theory, or was not extracted faithfully."""


class BadText(FrostlineError):
    """A text file cannot be read, or its tokens cannot be used."""


class EmptyTexts(BadText):
    """Some of the texts have no token; ``places`` has their numbers, from 0.

    Parameters
    ----------
    message
        The sentence that the error shows.
    places
        The numbers of these texts.

    Examples
    --------
    >>> import frostline as fl
    >>> fl.errors.EmptyTexts.among(3, [1]).places
    (1,)
    """

    def __init__(self, message: str = "", places: Sequence[int] = ()):
        super().__init__(*([message] if message else []))
        self.places = tuple(places)

    @classmethod
    def among(cls, texts: int, places: Sequence[int]) -> "EmptyTexts":
        """The error about these texts among so many.

        Parameters
        ----------
        texts
            The number of texts.
        places
            The numbers of the empty ones, from 0.

        Returns
        -------
        EmptyTexts
            The error.
        """
        return cls(f"{len(places)} of {texts} texts are empty, text {places[0]} first: they have no token.", places)


class BadBaseline(FrostlineError):
    """A .frost file is damaged, of a newer format, or belongs to another model or tokenizer."""


class BadCluster(FrostlineError):
    """A scheduler does not answer, or its workers cannot be used."""


class MissingExtra(FrostlineError):
    """An optional package is not installed; the message has the line to type."""
