"""The zero-temperature flow (THEORY section 3): tokens without interaction, each drawn to its y*(x)."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from frostline.arrays import Array, as_float64, as_number, as_times
from frostline.attention import Heads, as_one_layer, as_tokens_of, is_plain
from frostline.errors import BadParameter
from frostline.results import Result
from frostline.sphere import unit_rows
from frostline.theory import clock
from frostline.theory.multi_head_flow import Field, integrate


@dataclass(frozen=True, eq=False, repr=False)
class ZeroTemperaturePath(Result):
    """Tokens along the zero-temperature flow.

    Attributes
    ----------
    times : ndarray
        The times asked for, (k,).
    tokens : Array
        Tokens at these times, (k, …, n, d); NaN after a token's path has ended.
    clocks : Array or None
        The clock τ of THEORY eq. 6, (k, …, n); None where there is no closed form.
    ended : Array
        The time (…, n) at which a token runs into ker Bᵀ, where the flow is not defined: one plain head gets there as
        its clock τ → ∞. Infinite for tokens that do not.
    method : str
        "exact in the clock" or "integrated".
    """

    times: np.ndarray
    tokens: Array
    clocks: Array | None
    ended: Array
    method: str

    @property
    def _lost(self) -> int:
        return int(np.isfinite(as_float64(self.ended)).sum())

    def describe(self) -> str:
        """The number of tokens and times, the method, and how many tokens ended in ker Bᵀ, in words."""
        n, span = int(np.prod(self.ended.shape)), f"t = {self.times[0]:g} to {self.times[-1]:g}"
        words = f"{n} tokens at {len(self.times)} times from {span}, {self.method}. "
        return words + (f"{self._lost} of them ended in ker Bᵀ." if self._lost else "None ended in ker Bᵀ.")

    def headline(self) -> str:
        """Shape, times, method, and how many tokens ended in ker Bᵀ."""
        return (
            f"tokens {tuple(self.tokens.shape)}, t = {self.times[0]:g} … {self.times[-1]:g}, "
            f"{self.method}, {self._lost} tokens ended in ker Bᵀ"
        )

    def _repr_html_(self) -> str:
        return f"<p><b>{html.escape(repr(self))}</b></p>"


def zero_temperature(
    heads: Heads, x0: Array, *, times: Sequence[float] | Array, tolerance: float = 1e-10
) -> ZeroTemperaturePath:
    """Tokens at given times as β → ∞, where the initial density has full support: ẋ = P_xVy*(x) (THEORY eq. 5, 6).

    One head without key bias is exact in the clock τ: x(τ) = e^{τA}x₀/|e^{τA}x₀|, with t(τ) by quadrature. Several
    heads, or a key bias, are integrated. The temperature of the heads plays no role.

    Parameters
    ----------
    heads : Attention or list
        One layer: an Attention, or ``[[head1, head2]]``.
    x0 : Array
        Tokens (…, n, d) on the sphere.
    times : Array
        Ascending times ≥ 0.
    tolerance : float
        The largest error made per unit of the length that a token may travel, in [1e-13, 1e-2). On the exact path a
        token is off by at most tolerance·t·‖V‖ at time t; with several heads or a key bias, errors made early also
        grow or shrink with the flow.

    Returns
    -------
    ZeroTemperaturePath
        ``.times``, ``.tokens``, ``.clocks``, ``.ended`` and ``.method``.

    Raises
    ------
    BadArray, OffSphere
        ``x0`` does not fit the heads, or is not on the sphere.
    BadParameter
        ``times`` or ``tolerance`` is outside its range, there are several layers, or the path takes too many steps.

    Examples
    --------
    >>> from frostline.attention import Attention
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=1.0)
    >>> path = zero_temperature(head, [[0.6, 0.8]], times=[0, 1, 30])
    >>> path.tokens[-1].round(6) + 0.0
    array([[1., 0.]])
    """
    layer = as_one_layer(heads, "zero_temperature")
    tokens, kind = as_tokens_of(layer, x0)
    if not (1e-13 <= as_number(tolerance, "tolerance") < 1e-2):
        raise BadParameter(f"tolerance is {tolerance:g}; between 1e-13 and 1e-2 is meaningful here.")
    save_at = as_times(times, "times")
    # float32 tokens are unit vectors to 1e-7 only; in float64 they are made so exactly.
    flat = unit_rows(as_float64(tokens).reshape(-1, tokens.shape[-1]))
    batch = tokens.shape[:-1]
    if is_plain(layer):
        B, _, A, _ = layer[0].matrices
        path = clock.at_times(A, B, flat, save_at, tolerance=tolerance)
        frames, ended = path.tokens, path.ended
        clocks = kind.restore(path.clocks.reshape(len(save_at), *batch))
        method = "exact in the clock"
    else:
        field = Field.of(layer)
        frames, ended = integrate(field, flat, save_at, tolerance=tolerance * field.speed_scale)
        clocks, method = None, "integrated"
    return ZeroTemperaturePath(
        times=save_at,
        tokens=kind.restore(frames.reshape(len(save_at), *tokens.shape)),
        clocks=clocks,
        ended=kind.restore(ended.reshape(batch)),
        method=method,
    )


def at_clocks(heads: Heads, x0: Array, clocks: Sequence[float] | Array) -> Array:
    """All tokens of one plain head at common clocks τ: e^{τA}x₀/|e^{τA}x₀|, shape (k, …, n, d) (THEORY eq. 6)."""
    layer = as_one_layer(heads, "at_clocks")
    if not is_plain(layer):
        raise BadParameter("several heads or a key bias have no clock; use zero_temperature with times.")
    tokens, kind = as_tokens_of(layer, x0)
    flat = unit_rows(as_float64(tokens).reshape(-1, tokens.shape[-1]))
    frames = clock.at_clocks(layer[0].matrices.A, flat, as_times(clocks, "clocks"))
    return kind.restore(frames.reshape(-1, *tokens.shape))
