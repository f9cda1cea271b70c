"""Roles of heads in words: the kind of token that a head pays most of its attention to, as measured on text."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from frostline.auditing.explained import Explained
from frostline.auditing.explanations import PLACES

WORDS = {
    "first": "first token",
    "last": "last token",
    "self": "itself",
    "previous": "previous token",
    "next": "next token",
    "same": "same token elsewhere",
    "best": "best single token",
    "cloud": "cloud",
}
"""The kinds of tokens in words."""
MOST = 0.5
"""A head that pays at least this share to one kind of token is named by it alone."""
NOTED = 0.15
"""Smallest share of a second kind that is named."""
OFTEN = 0.05
"""Smallest share of the asking tokens that have a token of a kind, for a head to be named by it."""


def roles(explained: Explained, freezing: Float[np.ndarray, "layers heads"]) -> list[list[str]]:
    """The role of every head: "previous token 0.999", "cloud 0.62 (tilted), first token 0.21"."""
    return [
        [_role(head_met, head_often, cold) for head_met, head_often, cold in zip(met, often, colds, strict=True)]
        for met, often, colds in zip(*_shares(explained), freezing, strict=True)
    ]


def _shares(explained: Explained) -> tuple[np.ndarray, np.ndarray]:
    """Attention paid by tokens that have such a one, and whether enough of them do."""
    often = np.where(explained.met > 0, explained.paid / np.where(explained.met > 0, explained.met, 1.0), 0.0) >= OFTEN
    return explained.met, often


def _role(met: Float[np.ndarray, " places"], often: np.ndarray, freezing: float) -> str:
    share: Mapping[str, float] = {
        name: float(value) for name, value, enough in zip(PLACES, met, often, strict=True) if enough
    }
    ranked = sorted(share, key=lambda name: -share[name])
    if not ranked:
        return "nothing to look at"
    named = ranked[:1]
    if share[ranked[0]] < MOST:
        named += [name for name in ranked[1:2] if share[name] >= NOTED]
    state = "frozen" if freezing > 1 else "tilted"
    return ", ".join(f"{WORDS[name]} {share[name]:.3f}" + (f" ({state})" if name == "cloud" else "") for name in named)
