"""Metrics of single heads, an option: the share of the tokens' energy in the subspace a head draws them to.

The subspace is the dominant eigenspace of the head's VBᵀ (THEORY, eq. 5), the eigenvalues with the largest real part:
at low temperature tokens end there. A head whose nonzero eigenvalues all have negative real parts draws tokens nowhere,
and has no number.
"""

from collections.abc import Mapping

import numpy as np

from frostline.encoders.fold import Norm, folded
from frostline.encoders.spectra import Factors
from frostline.errors import BadParameter
from frostline.monitoring.hooks import HiddenStates, Tap
from frostline.monitoring.scorer import Scorer

MOST_HEADS = 1024
"""Largest number of heads of a model with a metric per head."""
MEASURED_EVERY = 8
"""One pass in so many is measured."""
FORGETTING = 0.1
"""Weight of a new pass in the running mean."""


class HeadEnergies:
    """Measures passes of the scorer's model; a call returns the energies by layer and head."""

    def __init__(self, scorer: Scorer):
        encoder = scorer.encoder
        layers = [folded(encoder, number) for number in range(encoder.layers)]
        self.count = sum(len(layer.query) for layer in layers)
        if self.count > MOST_HEADS:
            raise BadParameter(f"the model has {self.count} heads; metrics per head are for {MOST_HEADS} at most.")
        self._layers: list[tuple[Norm, np.ndarray, np.ndarray]] = []
        self._drawn: list[np.ndarray] = []
        for layer in layers:
            leads = Factors.of(layer).dominant(epsilon=float(np.finfo(np.float64).eps), resolve=False)
            bases = [lead.ends for lead in leads]
            owner = np.repeat(np.arange(len(bases)), [basis.shape[1] for basis in bases])
            of_head = (owner[:, None] == np.arange(len(bases))).astype(float)
            self._layers.append((layer.norm, np.concatenate(bases, 1), of_head))
            self._drawn.append(of_head.any(0))
        self._passes = 0
        self._mean: list[np.ndarray] | None = None
        self._tap = Tap(scorer.model, encoder, range(encoder.layers), self._measure, strict=True)

    def __call__(self) -> Mapping[tuple[int, int], float]:
        return {
            (layer, head): float(energies[head])
            for layer, (energies, drawn) in enumerate(zip(self._mean or [], self._drawn, strict=False))
            for head in np.flatnonzero(drawn).tolist()
        }

    def close(self) -> None:
        """Take the hooks off the model."""
        self._tap.close()

    def _measure(self, hidden: HiddenStates) -> None:
        self._passes += 1
        if (self._passes - 1) % MEASURED_EVERY:
            return
        present = hidden.present
        energies = [
            ((norm.on_sphere(state[present].double().numpy())[0] @ basis) ** 2 @ of_head).mean(0)
            for state, (norm, basis, of_head) in zip(hidden.states, self._layers, strict=True)
        ]
        before = self._mean
        self._mean = (
            energies
            if before is None
            else [mean + FORGETTING * (new - mean) for mean, new in zip(before, energies, strict=True)]
        )
