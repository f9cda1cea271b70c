"""Heads one by one, for those who ask: how much of the tokens' energy lies in the subspace a head draws them to.

The subspace is the dominant eigenspace of the head's VBᵀ (THEORY, eq. 5), the eigenvalues with the largest real part:
at low temperature tokens end there. A head whose nonzero eigenvalues all have negative real parts draws tokens nowhere,
and has no number.
"""

from collections.abc import Mapping

import numpy as np

from frostline.encoders.fold import Norm, folded
from frostline.encoders.spectra import Factors
from frostline.errors import BadParameter
from frostline.monitoring.hooks import Taking, Tap
from frostline.monitoring.scorer import Scorer

MOST = 1024
"""Heads of a model that get a metric each, at most."""
EVERY = 8
"""One pass in so many is looked at."""
FORGETS = 0.1
"""Weight of a new pass in the mean."""


class Heads:
    """Looks at passes of the scorer's model; called, it gives the energies by layer and head."""

    def __init__(self, scorer: Scorer):
        encoder = scorer.encoder
        layers = [folded(encoder, number) for number in range(encoder.layers)]
        self.count = sum(len(layer.query) for layer in layers)
        if self.count > MOST:
            raise BadParameter(f"the model has {self.count} heads; metrics per head are for {MOST} at most.")
        self._layers: list[tuple[Norm, np.ndarray, np.ndarray]] = []
        self._drawn: list[np.ndarray] = []
        for layer in layers:
            leads = Factors.of(layer).dominant(epsilon=float(np.finfo(np.float64).eps), resolve=False)
            bases = [lead.ends for lead in leads]
            owner = np.repeat(np.arange(len(bases)), [basis.shape[1] for basis in bases])
            which = (owner[:, None] == np.arange(len(bases))).astype(float)
            self._layers.append((layer.norm, np.concatenate(bases, 1), which))
            self._drawn.append(which.any(0))
        self._passes = 0
        self._mean: list[np.ndarray] | None = None
        self._tap = Tap(scorer.model, encoder, range(encoder.layers), self._take, strict=True)

    def __call__(self) -> Mapping[tuple[int, int], float]:
        found = self._mean or []
        return {
            (layer, head): float(energies[head])
            for layer, (energies, drawn) in enumerate(zip(found, self._drawn, strict=False))
            for head in np.flatnonzero(drawn).tolist()
        }

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
