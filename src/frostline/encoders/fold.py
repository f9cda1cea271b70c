"""The weights of a layer, folded onto the sphere (THEORY eq. 14–15).

Heads see tokens as Γ√d·u + b with u a unit vector of mean zero: what entered a post-norm layer, or what a pre-norm
layer's own norm makes of it. Norm, biases, scale and the zero-mean subspace go into B_h, g_h, V_h and c_h, which are
kept as factors: no d×d matrix is formed per head.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from frostline.attention import Attention, Factored
from frostline.encoders.load import Encoder


@dataclass(frozen=True, eq=False)
class Norm:
    """Γ and b of the norm between tokens x and the heads; x on the sphere is a unit vector u and a size in units of √d.

    Tokens that come from the norm are x = Γ√d·size·u + b: the size is 1 but for the norm's epsilon. Tokens that go
    into it (``epsilon`` is set: a pre-norm layer) are x = √d·size·u + mean, of any size. Where there is no norm at all
    (``present`` is False) u is their direction, and its mean need not be zero.
    """

    gamma: Float[np.ndarray, " d"]
    shift: Float[np.ndarray, " d"]
    present: bool = True
    epsilon: float | None = None

    def on_sphere(self, x: Float[np.ndarray, "... d"]) -> tuple[Float[np.ndarray, "... d"], Float[np.ndarray, "..."]]:
        """u and the size of tokens x."""
        if self.epsilon is not None:
            return _direction(_centred(x, -1))
        erased = self.gamma == 0
        raw = (x - self.shift) / np.where(erased, 1.0, self.gamma)
        if self.present and erased.any():
            # The mean is zero, so the sum of what γ = 0 erased is known; attention depends on no more than that.
            raw = np.where(erased, -np.where(erased, 0.0, raw).sum(-1, keepdims=True) / erased.sum(), raw)
        elif self.present:
            raw = _centred(raw, -1)
        return _direction(raw)

    def radius(self, size: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The length of u as heads see it: 1 but for epsilon, where there is a norm."""
        return size if self.epsilon is None else np.asarray(size / np.sqrt(size**2 + self.epsilon))

    def entering(self, u: Float[np.ndarray, "n d"], size: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n d"]:
        """The tokens as heads see them."""
        return np.asarray(u * self.radius(size)[:, None])

    def past(self, u: Float[np.ndarray, "n d"], size: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n d"]:
        """The tokens themselves without their mean, as they go past attention."""
        tokens = np.sqrt(u.shape[-1]) * size[:, None] * u
        return tokens if self.epsilon is not None else _centred(self.gamma * tokens + self.shift, -1)


@dataclass(frozen=True, eq=False)
class FoldedLayer:
    """One layer: logit = uᵀB_h v + g_hᵀv with B_h = query[h]ᵀ key[h], update Σ_h (V_h m_h + c_h) + output_bias.

    V_h = output[h] value[h] is in residual units; g_h = key[h]ᵀ query_shift[h]. ``key_shift`` is the part of the keys
    that all tokens share: without effect, unless places turn it. ``norm`` is between the tokens and the heads.
    ``unfolded``: the parts of this layer that are not in these matrices, in words.
    """

    number: int
    query: Float[np.ndarray, "h k d"]
    key: Float[np.ndarray, "h k d"]
    query_shift: Float[np.ndarray, "h k"]
    key_shift: Float[np.ndarray, "h k"]
    value: Float[np.ndarray, "h k d"]
    output: Float[np.ndarray, "h d k"]
    head_shift: Float[np.ndarray, "h d"]
    output_bias: Float[np.ndarray, " d"]
    norm: Norm
    unfolded: tuple[str, ...]

    @property
    def dimension(self) -> int:
        """d."""
        return int(self.query.shape[2])

    @cached_property
    def unit(self) -> float:
        """The size of the tokens that go past attention, which V_h is divided by to act on unit vectors.

        √d·γ̄ after a norm; before one (pre-norm) tokens have no fixed size, and this is that of tokens of size 1. A norm
        that wipes out everything leaves no unit: 1.
        """
        scale = 1.0 if self.norm.epsilon is not None else np.sqrt((self.norm.gamma**2).mean())
        return float(np.sqrt(self.dimension) * scale) or 1.0

    @property
    def key_bias(self) -> Float[np.ndarray, "h d"]:
        """g_h of every head."""
        return np.einsum("hkd,hk->hd", self.key, self.query_shift)

    @cached_property
    def stacked_output(self) -> Float[np.ndarray, "hk d"]:
        """The output matrices of all heads, transposed, one below the other."""
        return np.ascontiguousarray(self.output.transpose(0, 2, 1).reshape(-1, self.dimension))

    @cached_property
    def centred_output(self) -> Float[np.ndarray, "h d k"]:
        """``output`` without its mean over the coordinates, which the norms that follow remove."""
        return _centred(self.output, 1)

    def heads(self) -> tuple[Attention, ...]:
        """The layer as Attention objects on the unit sphere: B_h/β_h, g_h/β_h, V_h/(√d γ̄), with β_h = ‖B_h‖₂."""
        heads = []
        factors = zip(self.query, self.key, self.key_bias, self.value, self.centred_output, strict=True)
        for query, key, bias, value, output in factors:
            beta = float(np.linalg.norm(np.linalg.qr(query.T).R @ np.linalg.qr(key.T).R.T, 2)) or 1.0
            heads.append(Attention(query / beta, key, Factored(output / self.unit, value), beta, key_bias=bias / beta))
        return tuple(heads)


def folded(encoder: Encoder, layer: int) -> FoldedLayer:
    """The layer of this number, from its tensors."""
    family, d, heads, k = encoder.family, encoder.dimension, encoder.heads, encoder.head_size
    norm = norm_before(encoder, layer)
    gamma, shift = norm.gamma, norm.shift
    split = (heads, k, d)
    query, key, value = (
        encoder.weight(part, layer).reshape(split) for part in (family.query, family.key, family.value)
    )
    query_bias, key_bias, value_bias = (
        encoder.bias(part, layer).reshape(heads, k) for part in (family.query, family.key, family.value)
    )
    scale = np.ones(d) if family.layer_scale is None else encoder.scale(family.layer_scale, layer)
    output = (scale[:, None] * encoder.weight(family.output, layer)).reshape(d, heads, k).transpose(1, 0, 2)
    root = np.sqrt(d)

    def centred(matrix: np.ndarray) -> np.ndarray:
        """The matrix on the tokens that the heads see: a norm has removed their mean."""
        return _centred(matrix, -1) if norm.present else matrix

    return FoldedLayer(
        number=layer,
        query=(d / np.sqrt(k)) * centred(query * gamma),
        key=centred(key * gamma),
        query_shift=np.sqrt(d / k) * (query @ shift + query_bias),
        key_shift=(key @ shift + key_bias) / root,
        value=root * centred(value * gamma),
        output=np.ascontiguousarray(output),
        head_shift=np.einsum("hdk,hk->hd", output, value @ shift + value_bias),
        output_bias=scale * encoder.bias(family.output, layer),
        norm=norm,
        unfolded=_unfolded(encoder, norm, layer),
    )


def norm_before(encoder: Encoder, layer: int) -> Norm:
    """The norm in front of this layer's heads; past the last layer, the one the model's last tokens come from."""
    family, d = encoder.family, encoder.dimension
    number: int | None = None
    if layer == 0 and family.entry_map is not None and encoder.has(family.entry_map):
        return Norm(np.ones(d), np.zeros(d), present=False)
    if family.attention_norm is not None and layer < encoder.layers:
        if encoder.has(family.attention_norm, layer) or family.entry_norm is None:
            name = family.attention_norm
            return Norm(encoder.scale(name, layer), encoder.bias(name, layer), epsilon=encoder.epsilon)
        # ModernBERT's first layer sees what the norm of the embeddings gives.
        name = family.entry_norm
    elif family.attention_norm is not None:
        name = family.final_norm
    elif layer == 0:
        name = str(family.entry_norm)
    else:
        name, number = family.output_norm, layer - 1
    return Norm(encoder.scale(name, number), encoder.bias(name, number))


def _unfolded(encoder: Encoder, norm: Norm, layer: int) -> tuple[str, ...]:
    """The parts of a layer that its folded matrices do not hold, in words."""
    reasons = []
    if encoder.positions == "relative":
        reasons.append("a bias by relative position is added to the logits; it is not part of B")
    if encoder.positions == "rotary":
        reasons.append("places turn queries and keys (rotary); B is what a token sees of tokens at its own place")
    window = encoder.window(layer)
    if window is not None:
        reasons.append(f"tokens see no further than {window} places; the theory lets them see all")
    if norm.epsilon is not None:
        reasons.append(
            "the norm is in front of attention: what goes past it has no fixed size, and rates from weights are for "
            "tokens of norm √d"
        )
    if not norm.present:
        reasons.append("tokens enter without a norm; u is their direction, and temperatures are for tokens of norm √d")
    return tuple(reasons)


def _direction(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors, and lengths in units of √d."""
    length = np.linalg.norm(raw, axis=-1)
    return raw / np.maximum(length, 1e-300)[..., None], np.asarray(length / np.sqrt(raw.shape[-1]))


def _centred(matrix: np.ndarray, axis: int) -> np.ndarray:
    """P₁ applied along an axis."""
    return np.asarray(matrix - matrix.mean(axis, keepdims=True))
