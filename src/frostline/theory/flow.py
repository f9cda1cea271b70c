"""The zero-temperature flow (THEORY section 3): tokens without interaction, each drawn to its y*(x)."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from frostline.arrays import Array, Kind, as_float64, as_number, as_times
from frostline.attention import Heads, as_one_layer, is_plain
from frostline.errors import BadArray, BadParameter
from frostline.printable import one_line
from frostline.sphere import as_tokens
from frostline.theory import clock
from frostline.theory.multi_head_flow import Field, integrate


@dataclass(frozen=True, eq=False)
class ZeroTemperaturePath:
    """Tokens along the zero-temperature flow.

    ``times`` (k,); ``tokens`` (k, …, n, d), NaN once a token's path has ended; ``clocks`` (k, …, n), the τ of THEORY
    eq. 6 (None when there is no closed form); ``ended`` (…, n), the time at which a token runs into ker Bᵀ, where the
    flow is no longer defined (infinite for tokens that do not; one plain head gets there as its clock τ → ∞);
    ``method`` "exact in the clock" or "integrated".
    """

    times: np.ndarray
    tokens: Array
    clocks: Array | None
    ended: Array
    method: str

    def __repr__(self) -> str:
        lost = int(np.isfinite(np.asarray(torch.as_tensor(self.ended).cpu())).sum())
        return one_line(
            self,
            f"tokens {tuple(self.tokens.shape)}, t = {self.times[0]:g} … {self.times[-1]:g}, "
            f"{self.method}, {lost} tokens ended in ker Bᵀ",
        )

    def _repr_html_(self) -> str:
        return f"<p><b>{html.escape(repr(self))}</b></p>"


def zero_temperature(
    heads: Heads, x0: Array, *, times: Sequence[float] | Array, tolerance: float = 1e-10
) -> ZeroTemperaturePath:
    """Where tokens are at the given times when β → ∞ and the initial density has full support (THEORY eq. 5, 6).

    One head without bias is exact in the clock τ, and t(τ) is found by quadrature to the relative ``tolerance``.
    Several heads, or a key bias, are integrated with that tolerance per unit of path length. The temperature of the
    heads plays no role.

    >>> from frostline.attention import Attention
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=1.0)
    >>> path = zero_temperature(head, [[0.6, 0.8]], times=[0, 1, 30])
    >>> path.tokens[-1].round(6) + 0.0
    array([[1., 0.]])
    """
    layer = as_one_layer(heads, "zero_temperature")
    tokens, kind = as_tokens(x0, "x0")
    if tokens.shape[-1] != layer[0].dimension:
        raise BadArray(f"x0 has dimension {tokens.shape[-1]}, the head {layer[0].dimension}; they must agree.")
    if not (1e-13 <= as_number(tolerance, "tolerance") < 1e-2):
        raise BadParameter(f"tolerance is {tolerance:g}; between 1e-13 and 1e-2 is meaningful here.")
    wanted = as_times(times, "times")
    flat = _on_sphere(as_float64(tokens).reshape(-1, tokens.shape[-1]))
    batch = tokens.shape[:-1]
    if is_plain(layer):
        B, _, A, _ = layer[0].matrices
        path = clock.at_times(A, B, flat, wanted, tolerance=tolerance)
        frames, ended = path.tokens, path.ended
        clocks = _restore(kind, path.clocks.reshape(len(wanted), *batch))
        method = "exact in the clock"
    else:
        field = Field.of(layer)
        frames, ended = integrate(field, flat, wanted, tolerance=tolerance * field.speed_scale)
        clocks, method = None, "integrated"
    return ZeroTemperaturePath(
        times=wanted,
        tokens=_restore(kind, frames.reshape(len(wanted), *tokens.shape)),
        clocks=clocks,
        ended=_restore(kind, ended.reshape(batch)),
        method=method,
    )


def at_clocks(heads: Heads, x0: Array, clocks: Sequence[float] | Array) -> Array:
    """All tokens at common clocks τ: e^{τA}x₀/|e^{τA}x₀|, shape (k, …, n, d) (THEORY eq. 6). One plain head only."""
    layer = as_one_layer(heads, "at_clocks")
    if not is_plain(layer):
        raise BadParameter("several heads or a key bias have no clock; use zero_temperature with times.")
    tokens, kind = as_tokens(x0, "x0")
    wanted = as_times(clocks, "clocks")
    flat = _on_sphere(as_float64(tokens).reshape(-1, tokens.shape[-1]))
    frames = clock.at_clocks(layer[0].matrices.A, flat, wanted)
    return _restore(kind, frames.reshape(len(wanted), *tokens.shape))


def _on_sphere(x: np.ndarray) -> np.ndarray:
    """float32 tokens are unit vectors to 1e-7 only; in float64 they are made so exactly."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _restore(kind: Kind, values: np.ndarray) -> Array:
    return kind.restore(torch.from_numpy(np.ascontiguousarray(values)))
