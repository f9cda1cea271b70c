"""Clusters of a run at one time, whether the cluster flow (THEORY eq. 12) describes them, and where they go."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from frostline.analysis.distance import OFF_CLUSTER
from frostline.analysis.replay import one_run, shares
from frostline.arrays import as_float64, as_number, as_positive
from frostline.attention import Attention, Layer, is_plain
from frostline.dynamics.simulation import Trajectory, simulate
from frostline.errors import BadParameter, BadRun
from frostline.results import Result
from frostline.sphere import unit_rows
from frostline.theory.regime import Regime
from frostline.theory.terminal import Terminal, terminal, validity

SMALLEST_MASS = 0.02
"""Groups with a smaller share of the mass count as stragglers, not as clusters."""
MOST = 50
"""Clusters that are looked for, at most."""
VALID = 0.1
"""The cluster flow is trusted while β|P_zBᵀz|s + β‖B‖s² is at most this."""


@dataclass(frozen=True, eq=False, repr=False)
class Clusters(Result):
    """Groups of tokens within 0.3 rad of a common centre at one ``time``, the heaviest first.

    Attributes
    ----------
    time : float
        The time, one of the kept times of the run.
    centres : ndarray
        Unit vectors (K, d).
    masses, counts : ndarray
        The mass and the number of the tokens in each cluster, (K,).
    spreads : ndarray
        The root mean square angle to the centre, (K,).
    labels : ndarray
        The cluster of each token, (n,); −1 for tokens that are off-cluster.
    validity : ndarray
        The number of THEORY section 9 that must be well below 1 for the cluster flow (12) to hold, (K,); NaN for
        several heads.
    fates : tuple
        The Terminal of each cluster; None for one that is not tight enough.
    regime : Regime
        The assumptions of the theory for this run.
    """

    time: float
    centres: Float[np.ndarray, "K d"]
    masses: Float[np.ndarray, "K"]
    counts: Int[np.ndarray, "K"]
    spreads: Float[np.ndarray, "K"]
    labels: Int[np.ndarray, "n"]
    validity: Float[np.ndarray, "K"]
    fates: tuple[Terminal | None, ...]
    regime: Regime
    _layer: Layer

    @property
    def off_cluster(self) -> int:
        """The number of tokens in no cluster (``phases`` counts those far from the predicted limit instead)."""
        return int((self.labels < 0).sum())

    @property
    def valid(self) -> bool:
        """Whether (12) describes these clusters: all are tight enough and together have nearly all of the mass."""
        return bool(len(self.masses) and self.masses.sum() > 1 - SMALLEST_MASS and (self.validity <= VALID).all())

    def reduced(self, until: float, *, save_at: object = None) -> Trajectory:
        """The cluster flow of THEORY eq. 12 from these clusters on.

        Parameters
        ----------
        until
            The final time, counted from ``time``.
        save_at
            The times to keep; by default the final one.

        Returns
        -------
        Trajectory
            The run of the K centres, weighted by their masses.

        Raises
        ------
        BadRun
            There are no clusters.
        """
        if not len(self.masses):
            raise BadRun("there are no clusters to follow; the tokens have not gathered.")
        return simulate(
            [list(self._layer)],
            self.centres,
            until=as_positive(until, "until"),
            weights=self.masses / self.masses.sum(),
            save_at=save_at,
        )

    def describe(self) -> str:
        """The clusters in words, a line for each."""
        count = len(self.masses)
        lines = [f"t = {self.time:g}: {count} cluster{'s' * (count != 1)}, {self.off_cluster} tokens in none of them."]
        for mass, spread, number, fate in zip(self.masses, self.spreads, self.validity, self.fates, strict=True):
            story = "" if fate is None else f" {fate.case}"
            lines.append(
                f"  {100 * mass:.3g} % of the mass, spread {spread:.2g} rad, validity of (12) {number:.2g}.{story}"
            )
        if len(self.masses) and not self.valid:
            known = np.isfinite(self.validity).all()
            verdict = "does not hold here" if known else "is not derived for several heads or a bias"
            lines.append(
                f"  The cluster flow (12) {verdict} (each number must be at most {VALID:g}, no mass left over)."
            )
        return "\n".join(lines)


def clusters(run: Trajectory, *, at: float | None = None) -> Clusters:
    """The clusters of a run at one of the times it kept (THEORY section 9).

    Parameters
    ----------
    run : Trajectory
        A run of one layer with tokens (n, d).
    at : float, optional
        One of the kept times; the last by default.

    Returns
    -------
    Clusters
        The clusters, and whether the cluster flow (12) describes them.

    Raises
    ------
    BadParameter
        The run has several layers.
    BadRun
        The run did not keep this time.

    Examples
    --------
    >>> from frostline import sample
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=10.0)
    >>> run = simulate(head, sample.uniform(60, 2, seed=0), until=8.0)
    >>> len(clusters(run).masses)
    2
    """
    one_run(run, "clusters")
    if len(run.layers) > 1:
        raise BadParameter(f"clusters takes a run of one layer, this one has {len(run.layers)}.")
    index = len(run.times) - 1
    if at is not None:
        matching = np.flatnonzero(np.abs(run.times - as_number(at, "at")) <= 1e-9 * max(1.0, run.until))
        if not len(matching):
            kept = ", ".join(f"{time:g}" for time in run.times[:8]) + (", …" if len(run.times) > 8 else "")
            raise BadRun(f"the run did not keep t = {at:g}, only {kept}; add it to save_at.")
        index = int(matching[0])
    x, w = unit_rows(as_float64(run.tokens[index])), shares(run)
    centres, labels = gather(x, w)
    count = len(centres)
    masses = np.array([w[labels == k].sum() for k in range(count)])
    angles = (
        2 * np.arcsin(np.minimum(1.0, np.linalg.norm(x - centres[labels], axis=1) / 2)) if count else np.zeros(len(x))
    )
    spreads = np.array([np.sqrt((w * angles**2)[labels == k].sum() / masses[k]) for k in range(count)])
    layer = run.layers[0]
    plain = is_plain(layer)
    numbers = np.array([validity(layer[0], z, s) if plain else np.nan for z, s in zip(centres, spreads, strict=True)])
    return Clusters(
        time=float(run.times[index]),
        centres=centres,
        masses=masses,
        counts=np.array([int((labels == k).sum()) for k in range(count)], dtype=np.int64),
        spreads=spreads,
        labels=labels,
        validity=numbers,
        fates=tuple(
            _fate(layer[0], z) if number <= VALID else None for z, number in zip(centres, numbers, strict=True)
        ),
        regime=run.regime,
        _layer=layer,
    )


def gather(x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, "n"]) -> tuple[np.ndarray, Int[np.ndarray, "n"]]:
    """Centres and labels: balls of 0.3 rad moved to the mean of the tokens inside, heaviest first."""
    reach = 2 * np.sin(OFF_CLUSTER / 2)
    free = np.ones(len(x), dtype=bool)
    accepted: list[np.ndarray] = []
    # Seeds spread over the cloud, so that a heavy cluster is met early; every token is a seed in the end.
    for seed in np.random.default_rng(0).permutation(len(x)):
        if len(accepted) >= MOST or not free.any():
            break
        if not free[seed]:
            continue
        centre = x[seed]
        for _ in range(10):
            inside = np.linalg.norm(x - centre, axis=1) <= reach
            mean = (weights * inside) @ x
            if not np.linalg.norm(mean) > 0:
                break
            moved = mean / np.linalg.norm(mean)
            if np.linalg.norm(moved - centre) < 1e-12:
                break
            centre = moved
        members = free & (np.linalg.norm(x - centre, axis=1) <= reach)
        members[seed] = True
        if weights[members].sum() >= SMALLEST_MASS:
            accepted.append(centre)
        free &= ~members
    centres = np.array(accepted).reshape(-1, x.shape[1])
    while len(centres):
        distance = np.stack([np.linalg.norm(x - centre, axis=1) for centre in centres])
        labels = np.where(distance.min(0) <= reach, distance.argmin(0), -1)
        masses = np.array([weights[labels == k].sum() for k in range(len(centres))])
        if masses.min() >= SMALLEST_MASS:
            order = np.argsort(-masses, kind="stable")
            return centres[order], np.append(np.argsort(order), -1)[labels]
        # The tokens of the lightest cluster were nearer to others: remove it and assign again.
        centres = np.delete(centres, masses.argmin(), axis=0)
    return centres, np.full(len(x), -1)


def _fate(head: Attention, centre: np.ndarray) -> Terminal | None:
    try:
        return terminal(head, centre=centre)
    except BadParameter:
        return None
