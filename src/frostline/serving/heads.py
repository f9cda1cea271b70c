"""Heads one by one, for those who ask: how much of the tokens' energy lies in the subspace a head draws them to.

The subspace is the dominant eigenspace of the head's VBᵀ (THEORY, eq. 5): at low temperature tokens end there.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from frostline.encoders.folding import folded
from frostline.errors import BadParameter
from frostline.monitoring.scoring import Scorer
from frostline.monitoring.tapping import Taking, Tap

MOST = 1024
"""Heads of a model that get a metric each, at most."""
EVERY = 8
"""One pass in so many is looked at."""
FORGETS = 0.1
"""Weight of a new pass in the mean."""


def leading(outer: Float[np.ndarray, "d k"], inner: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "d m"]:
    """An orthonormal basis of the dominant eigenspace of outer @ inner, from the small product inner @ outer."""
    values, vectors = np.linalg.eig(inner @ outer)
    most = vectors[:, np.abs(values).argmax()]
    columns = outer @ (most[:, None] if np.isreal(most).all() else np.stack([most.real, most.imag], 1))
    return np.asarray(np.linalg.qr(columns.real).Q)


class Heads:
    """Looks at passes of the scorer's model; called, it gives the energies by layer and head."""

    def __init__(self, scorer: Scorer):
        encoder = scorer.encoder
        layers = [folded(encoder, number) for number in range(encoder.layers)]
        self.count = sum(len(layer.query) for layer in layers)
        if self.count > MOST:
            raise BadParameter(f"the model has {self.count} heads; metrics per head are for {MOST} at most.")
        self._layers = []
        for layer in layers:
            parts = zip(layer.query, layer.key, layer.value, layer.output, strict=True)
            bases = [leading(output, value @ key.T @ query) for query, key, value, output in parts]
            owner = np.repeat(np.arange(len(bases)), [basis.shape[1] for basis in bases])
            which = (owner[:, None] == np.arange(len(bases))).astype(float)
            self._layers.append((layer.norm, np.concatenate(bases, 1), which))
        self._passes = 0
        self._mean: list[np.ndarray] | None = None
        self._tap = Tap(scorer.model, encoder, range(encoder.layers), self._take, strict=True)

    def __call__(self) -> Mapping[tuple[int, int], float]:
        found = self._mean or []
        return {(layer, head): float(e) for layer, own in enumerate(found) for head, e in enumerate(own)}

    def close(self) -> None:
        self._tap.close()

    def _take(self, taken: Taking) -> None:
        self._passes += 1
        if (self._passes - 1) % EVERY:
            return
        mask = taken.present
        seen = [
            ((norm.on_sphere(state[mask].double().numpy())[0] @ basis) ** 2 @ which).mean(0)
            for state, (norm, basis, which) in zip(taken.states, self._layers, strict=True)
        ]
        before = self._mean
        self._mean = seen if before is None else [a + FORGETS * (b - a) for a, b in zip(before, seen, strict=True)]
