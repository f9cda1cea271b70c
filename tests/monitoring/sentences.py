"""Texts of one source, as many as wanted: sentences by a small grammar over the words of the tiny tokenizer."""

import numpy as np

NOUNS, VERBS = (
    ("frost", "line", "ground", "water", "ice", "token", "cloud", "layer", "head"),
    ("freezes", "moves", "melts"),
)
ENDS = ("in the ice", "of water", "below the ground", "and melts", "and is ice")


def sentences(count, *, seed):
    """Different sentences, three to fourteen words each."""
    rng = np.random.default_rng(seed)
    found = {}
    while len(found) < count:
        clauses = []
        for _ in range(rng.integers(1, 4)):
            noun, verb = NOUNS[rng.integers(len(NOUNS))], VERBS[rng.integers(len(VERBS))]
            end = ENDS[rng.integers(len(ENDS))] if rng.random() < 0.6 else ""
            clauses.append(f"{('the', 'a')[rng.integers(2)]} {noun} {verb} {end}".strip())
        found[" and ".join(clauses)] = None
    return list(found)


def fresh(count):
    """Sentences that the baseline of these tests has not seen."""
    known = set(sentences(900, seed=0))
    return [text for text in sentences(2 * count, seed=1) if text not in known][:count]
