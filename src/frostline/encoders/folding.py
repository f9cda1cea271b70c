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
class FoldedLayer:
    """One layer: logit = uᵀB_h v + g_hᵀv with B_h = query[h]ᵀ key[h], update Σ_h (V_h m_h + c_h) + output_bias.

    V_h = output[h] value[h] is in residual units. ``gamma``, ``shift``: Γ and b of the norm the layer's tokens come
    from. ``unfolded``: what of this layer is not in these matrices, in words.
    """

    number: int
    query: Float[np.ndarray, "h k d"]
    key: Float[np.ndarray, "h k d"]
    key_bias: Float[np.ndarray, "h d"]
    value: Float[np.ndarray, "h k d"]
    output: Float[np.ndarray, "h d k"]
    head_shift: Float[np.ndarray, "h d"]
    output_bias: Float[np.ndarray, " d"]
    gamma: Float[np.ndarray, " d"]
    shift: Float[np.ndarray, " d"]
    normalised: bool
    """False where tokens enter without a norm: then u is their direction, and B and V are for tokens of norm √d."""
    unfolded: tuple[str, ...]

    @property
    def dimension(self) -> int:
        return int(self.query.shape[2])

    @cached_property
    def unit(self) -> float:
        """√d·γ̄: what V_h is divided by to act on unit vectors."""
        return float(np.sqrt(self.dimension) * np.sqrt((self.gamma**2).mean()))

    def on_sphere(self, x: Float[np.ndarray, "... d"]) -> tuple[Float[np.ndarray, "... d"], Float[np.ndarray, "..."]]:
        """The unit vectors u of tokens x that enter this layer, and their radius: x = Γ√d·radius·u + b.

        The radius is 1 but for the norm's epsilon; where tokens enter without a norm it is whatever it is.
        """
        raw = (x - self.shift) / np.where(self.gamma == 0, 1.0, self.gamma)
        if self.normalised:
            raw = raw - raw.mean(-1, keepdims=True)
        radius = np.linalg.norm(raw, axis=-1)
        return raw / np.maximum(radius, 1e-300)[..., None], radius / np.sqrt(self.dimension)

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

    gamma, shift, normalised = _norm_before(encoder, layer)
    split = (heads, k, d)
    query, key, value = (
        encoder.weight(part, layer).reshape(split) for part in (family.query, family.key, family.value)
    )
    asked, offered = (encoder.bias(part, layer).reshape(heads, k) for part in (family.query, family.value))
    output = encoder.weight(family.output, layer).reshape(d, heads, k).transpose(1, 0, 2)
    centred = _centred if normalised else _as_it_is
    root = np.sqrt(d)
    return FoldedLayer(
        number=layer,
        query=(d / np.sqrt(k)) * centred(query * gamma, -1),
        key=centred(key * gamma, -1),
        key_bias=np.sqrt(d / k) * centred(np.einsum("hkd,hk->hd", key * gamma, query @ shift + asked), -1),
        value=root * centred(value * gamma, -1),
        output=np.ascontiguousarray(output),
        head_shift=np.einsum("hdk,hk->hd", output, value @ shift + offered),
        output_bias=encoder.bias(family.output, layer),
        gamma=gamma,
        shift=shift,
        normalised=normalised,
        unfolded=_unfolded(encoder, layer, normalised),
    )


def _norm_before(encoder: Encoder, layer: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Γ and b of the norm whose output enters attention, and whether there is one."""
    family, d = encoder.family, encoder.dimension
    if layer == 0:
        if family.entry_map is not None and encoder.has(family.entry_map):
            return np.ones(d), np.zeros(d), False
        name, number = family.entry_norm, None
    else:
        name, number = family.output_norm, layer - 1
    return encoder.weight(name, number), encoder.bias(name, number), True


def _unfolded(encoder: Encoder, layer: int, normalised: bool) -> tuple[str, ...]:
    found = []
    if encoder.family.positions == "relative":
        found.append("a bias by relative position is added to the logits; it is not part of B")
    if not normalised:
        found.append("tokens enter without a norm; u is their direction, and temperatures are for tokens of norm √d")
    return tuple(found)


def _centred(matrix: np.ndarray, axis: int) -> np.ndarray:
    """P₁ applied along an axis."""
    return np.asarray(matrix - matrix.mean(axis, keepdims=True))


def _as_it_is(matrix: np.ndarray, axis: int) -> np.ndarray:
    return matrix
