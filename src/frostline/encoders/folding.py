"""The weights of a layer, folded onto the sphere (THEORY eq. 14–15).

Tokens that enter a layer are x = Γ√d·u + b with u a unit vector of mean zero. Norm, biases, scale and the zero-mean
subspace go into B_h, g_h, V_h and c_h, which are kept as factors: no d×d matrix is formed per head.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from frostline.attention import Attention, Factored
from frostline.encoders.loading import Encoder


@dataclass(frozen=True, eq=False)
class Norm:
    """Γ and b of the norm that tokens come from: x = Γ√d·radius·u + b with u a unit vector of mean zero.

    The radius is 1 but for the norm's epsilon. Where tokens come without a norm (``present`` is False) u is their
    direction, its mean need not be zero, and the radius is whatever it is.
    """

    gamma: Float[np.ndarray, " d"]
    shift: Float[np.ndarray, " d"]
    present: bool = True

    def on_sphere(self, x: Float[np.ndarray, "... d"]) -> tuple[Float[np.ndarray, "... d"], Float[np.ndarray, "..."]]:
        """u and the radius of tokens x."""
        lost = self.gamma == 0
        raw = (x - self.shift) / np.where(lost, 1.0, self.gamma)
        if self.present and lost.any():
            # The mean is zero, so what γ = 0 has wiped out is known in sum; nothing that attention does depends on it.
            raw = np.where(lost, -np.where(lost, 0.0, raw).sum(-1, keepdims=True) / lost.sum(), raw)
        elif self.present:
            raw = raw - raw.mean(-1, keepdims=True)
        radius = np.linalg.norm(raw, axis=-1)
        return raw / np.maximum(radius, 1e-300)[..., None], radius / np.sqrt(x.shape[-1])


@dataclass(frozen=True, eq=False)
class FoldedLayer:
    """One layer: logit = uᵀB_h v + g_hᵀv with B_h = query[h]ᵀ key[h], update Σ_h (V_h m_h + c_h) + output_bias.

    V_h = output[h] value[h] is in residual units; g_h = key[h]ᵀ asked[h]. ``norm`` is the one its tokens come from.
    ``unfolded``: what of this layer is not in these matrices, in words.
    """

    number: int
    query: Float[np.ndarray, "h k d"]
    key: Float[np.ndarray, "h k d"]
    asked: Float[np.ndarray, "h k"]
    value: Float[np.ndarray, "h k d"]
    output: Float[np.ndarray, "h d k"]
    head_shift: Float[np.ndarray, "h d"]
    output_bias: Float[np.ndarray, " d"]
    norm: Norm
    unfolded: tuple[str, ...]

    @property
    def dimension(self) -> int:
        return int(self.query.shape[2])

    @cached_property
    def unit(self) -> float:
        """√d·γ̄: what V_h is divided by to act on unit vectors."""
        return float(np.sqrt(self.dimension) * np.sqrt((self.norm.gamma**2).mean()))

    @property
    def key_bias(self) -> Float[np.ndarray, "h d"]:
        return np.einsum("hkd,hk->hd", self.key, self.asked)

    def heads(self) -> tuple[Attention, ...]:
        """The layer as Attention objects on the unit sphere: B_h/β_h, g_h/β_h, V_h/(√d γ̄), with β_h = ‖B_h‖₂."""
        found = []
        for query, key, bias, value, output in zip(
            self.query, self.key, self.key_bias, self.value, self.output, strict=True
        ):
            beta = float(np.linalg.norm(np.linalg.qr(query.T).R @ np.linalg.qr(key.T).R.T, 2)) or 1.0
            found.append(
                Attention(
                    query / beta, key, Factored(_centred(output, 0) / self.unit, value), beta, key_bias=bias / beta
                )
            )
        return tuple(found)


def folded(encoder: Encoder, layer: int) -> FoldedLayer:
    """The layer of this number, from its tensors."""
    family, d, heads = encoder.family, encoder.dimension, encoder.heads
    k = encoder.head_size

    norm = norm_before(encoder, layer)
    gamma, shift = norm.gamma, norm.shift
    split = (heads, k, d)
    query, key, value = (
        encoder.weight(part, layer).reshape(split) for part in (family.query, family.key, family.value)
    )
    asked, offered = (encoder.bias(part, layer).reshape(heads, k) for part in (family.query, family.value))
    output = encoder.weight(family.output, layer).reshape(d, heads, k).transpose(1, 0, 2)
    centred = _centred if norm.present else _as_it_is
    root = np.sqrt(d)
    return FoldedLayer(
        number=layer,
        query=(d / np.sqrt(k)) * centred(query * gamma, -1),
        key=centred(key * gamma, -1),
        asked=np.sqrt(d / k) * (query @ shift + asked),
        value=root * centred(value * gamma, -1),
        output=np.ascontiguousarray(output),
        head_shift=np.einsum("hdk,hk->hd", output, value @ shift + offered),
        output_bias=encoder.bias(family.output, layer),
        norm=norm,
        unfolded=_unfolded(encoder, norm),
    )


def norm_before(encoder: Encoder, layer: int) -> Norm:
    """The norm whose output enters this layer; past the last layer, the one the model's last tokens come from."""
    family, d = encoder.family, encoder.dimension
    if layer == 0:
        if family.entry_map is not None and encoder.has(family.entry_map):
            return Norm(np.ones(d), np.zeros(d), present=False)
        name, number = family.entry_norm, None
    else:
        name, number = family.output_norm, layer - 1
    return Norm(encoder.weight(name, number), encoder.bias(name, number))


def _unfolded(encoder: Encoder, norm: Norm) -> tuple[str, ...]:
    found = []
    if encoder.family.positions == "relative":
        found.append("a bias by relative position is added to the logits; it is not part of B")
    if not norm.present:
        found.append("tokens enter without a norm; u is their direction, and temperatures are for tokens of norm √d")
    return tuple(found)


def _centred(matrix: np.ndarray, axis: int) -> np.ndarray:
    """P₁ applied along an axis."""
    return np.asarray(matrix - matrix.mean(axis, keepdims=True))


def _as_it_is(matrix: np.ndarray, axis: int) -> np.ndarray:
    return matrix
