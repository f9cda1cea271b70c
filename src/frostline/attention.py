"""Attention: one head as the mathematics has it (query, key, value, beta), and stacks of heads and layers.

B = QᵀK decides the logits, A = VBᵀ the zero-temperature limit (THEORY section 1). Query and key are k×d with k < d in
real heads: products are applied factor by factor and spectra come from k×k matrices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from frostline.arrays import Array, Kind, as_float64, as_matrix, as_positive, as_tensor
from frostline.errors import BadArray, BadParameter
from frostline.results import Result
from frostline.sphere import as_tokens


@dataclass(frozen=True, eq=False, repr=False)
class Factored(Result):
    """The matrix left·right, kept as its factors: a value matrix W_O·W_V of rank k < d, for example.

    Parameters
    ----------
    left : Array
        The factor (d, k).
    right : Array
        The factor (k, d).

    Examples
    --------
    >>> value = Factored(np.ones((3, 1)), np.ones((1, 3)))
    >>> value
    Factored((3, 1) times (1, 3))
    >>> Attention.from_matrices(np.eye(3), value, beta=10.0).V.shape
    (3, 3)
    """

    left: Array
    right: Array

    def describe(self) -> str:
        """The shapes of the factors."""
        return f"{tuple(np.shape(self.left))} times {tuple(np.shape(self.right))}"


class Matrices(NamedTuple):
    """A head in float64 numpy, for the theory: B, V, A = VBᵀ and the key bias (None when there is none)."""

    B: Float[np.ndarray, "d d"]
    V: Float[np.ndarray, "d d"]
    A: Float[np.ndarray, "d d"]
    key_bias: Float[np.ndarray, " d"] | None


class Attention:
    """One attention head on the sphere S^{d−1}: logits β·xᵀBy with B = QᵀK, values Vy (THEORY eq. 1, 2).

    Parameters
    ----------
    query, key : Array
        Q and K, both (k, d). All matrices have one dtype.
    value : Array or Factored
        V, (d, d).
    beta : float
        Inverse temperature β, finite and > 0.
    key_bias : Array, optional
        g, (d,): the logit becomes β(xᵀBy + gᵀy).

    Raises
    ------
    BadArray
        Shapes or dtypes do not fit, or an entry is not finite.
    BadParameter
        ``beta`` is not finite and positive.

    Examples
    --------
    >>> head = Attention(query=[[1.0, 0.0]], key=[[0.0, 2.0]], value=np.eye(2), beta=10.0)
    >>> head.B
    array([[0., 2.],
           [0., 0.]])
    >>> head = Attention.from_matrices(B=np.diag([1, 0.5]), V=np.eye(2), beta=10.0)
    >>> head.dimension, head.rank_bound
    (2, 2)
    """

    def __init__(
        self, query: Array, key: Array, value: Array | Factored, beta: float, *, key_bias: Array | None = None
    ):
        self._query, self._kind = as_matrix(query, "query")
        self._key, _ = as_matrix(key, "key")
        if self._query.shape != self._key.shape:
            raise BadArray(
                f"query has shape {tuple(self._query.shape)}, key {tuple(self._key.shape)}; both must be (k, d)."
            )
        d = self._query.shape[1]
        if d < 2:
            raise BadArray("query and key have dimension d = 1, where the sphere is two points; use d ≥ 2.")
        factors = (value.left, value.right) if isinstance(value, Factored) else (value,)
        # V as a product of one or two factors, applied right to left.
        self._value = tuple(self._like(as_matrix(factor, "value")[0]) for factor in factors)
        shapes = [tuple(factor.shape) for factor in self._value]
        if shapes[0][0] != d or shapes[-1][1] != d or shapes[0][1] != shapes[-1][0]:
            raise BadArray(f"value has shape {' · '.join(map(str, shapes))}; query and key need ({d}, {d}).")
        self._key = self._like(self._key)
        self._key_bias = None
        if key_bias is not None:
            self._key_bias = self._like(as_tensor(key_bias, "key_bias")[0])
            if self._key_bias.shape != (d,):
                raise BadArray(f"key_bias has shape {tuple(self._key_bias.shape)}; ({d},) is needed.")
        self.beta = as_positive(beta, "beta")

    @classmethod
    def from_matrices(cls, B: Array, V: Array | Factored, beta: float, *, key_bias: Array | None = None) -> "Attention":
        """A head given by B = QᵀK itself: query = identity, key = B.

        Parameters
        ----------
        B : Array
            The logit matrix, (d, d).
        V : Array or Factored
            The value matrix, (d, d).
        beta : float
            Inverse temperature β, finite and > 0.
        key_bias : Array, optional
            g, (d,).

        Returns
        -------
        Attention
            The head.

        Raises
        ------
        BadArray
            ``B`` is not square, or another matrix does not fit.
        BadParameter
            ``beta`` is not finite and positive.

        Examples
        --------
        >>> Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=10.0)
        Attention(d=2, k=2, beta=10)
        """
        matrix, kind = as_matrix(B, "B")
        if matrix.shape[0] != matrix.shape[1]:
            raise BadArray(f"B has shape {tuple(matrix.shape)}; it must be square, (d, d).")
        return cls(kind.restore(torch.eye(len(matrix))), kind.restore(matrix), V, beta, key_bias=key_bias)

    @property
    def dimension(self) -> int:
        """d, the dimension of the space the tokens live in."""
        return int(self._query.shape[1])

    @property
    def rank_bound(self) -> int:
        """The largest possible rank of B and of A: k for (k, d) factors."""
        return min(self._query.shape)

    @property
    def B(self) -> Array:
        """QᵀK, (d, d)."""
        return self._kind.restore(self._query.T @ self._key)

    @property
    def V(self) -> Array:
        """The value matrix, (d, d)."""
        return self._kind.restore(self._dense_value())

    @property
    def A(self) -> Array:
        """VBᵀ, (d, d): the matrix whose spectrum decides the zero-temperature limit."""
        return self._kind.restore(self._dense_value() @ self._key.T @ self._query)

    @property
    def key_bias(self) -> Array | None:
        """g, (d,); None without a key bias."""
        return None if self._key_bias is None else self._kind.restore(self._key_bias)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of all matrices of the head."""
        return self._query.dtype

    @cached_property
    def matrices(self) -> Matrices:
        """The head in float64 numpy, whatever kind of array it was made from."""
        query, key, V = as_float64(self._query), as_float64(self._key), as_float64(self._dense_value(torch.float64))
        bias = None if self._key_bias is None else as_float64(self._key_bias)
        with np.errstate(over="ignore", invalid="ignore"):
            matrices = Matrices(query.T @ key, V, V @ key.T @ query, bias)
        if not np.isfinite(matrices.A).all():
            raise BadArray(
                "A = VBᵀ overflows: entries of B and V are too large; scale them down (time takes the factor)."
            )
        return matrices

    @cached_property
    def eigenvalues(self) -> Complex[np.ndarray, "d"]:
        """The spectrum of A, largest real part first; for k < d from the k×k matrix QVKᵀ, with d − k zeros."""
        query = as_float64(self._query)
        if len(query) < self.dimension:
            small = query @ as_float64(self.apply_value(self._key.to(torch.float64))).T
            values = np.concatenate([np.linalg.eigvals(small), np.zeros(self.dimension - len(query))])
        else:
            values = np.linalg.eigvals(self.matrices.A)
        values = values.astype(np.complex128)
        return values[np.lexsort((-values.imag, -values.real))]

    @cached_property
    def singular_values(self) -> Float[np.ndarray, "d"]:
        """Singular values of B, largest first; for k < d from a k×k matrix, with d − k zeros."""
        query, key = as_float64(self._query), as_float64(self._key)
        core = np.linalg.qr(query.T).R @ np.linalg.qr(key.T).R.T
        values = np.linalg.svd(core, compute_uv=False)
        return np.concatenate([values, np.zeros(self.dimension - len(values))])

    def logit_direction(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """Bᵀx + g, row by row; times β this is the p of THEORY section 2.

        Parameters
        ----------
        x
            The tokens (…, d).

        Returns
        -------
        Tensor
            One direction for each token, (…, d).
        """
        direction = (x @ self._query.T) @ self._key
        return direction if self._key_bias is None else direction + self._key_bias

    def apply_value(self, m: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """V m, row by row, factor by factor.

        Parameters
        ----------
        m
            Mean values (…, d).

        Returns
        -------
        Tensor
            V m of each, (…, d).
        """
        for factor in reversed(self._value):
            m = m @ factor.to(m).T
        return m

    def to(self, tensor: Tensor) -> "Attention":
        """This head with the dtype and device of ``tensor``, for the inner loops.

        Parameters
        ----------
        tensor
            A tensor of the dtype and on the device that the head should have.

        Returns
        -------
        Attention
            The head there; the same object where nothing changes.
        """
        if self._query.dtype == tensor.dtype and self._query.device == tensor.device:
            return self
        value = [factor.to(tensor) for factor in self._value]
        return Attention(
            self._query.to(tensor),
            self._key.to(tensor),
            value[0] if len(value) == 1 else Factored(*value),
            self.beta,
            key_bias=None if self._key_bias is None else self._key_bias.to(tensor),
        )

    def with_beta(self, beta: float) -> "Attention":
        """The same head at another inverse temperature.

        Parameters
        ----------
        beta
            The other inverse temperature.

        Returns
        -------
        Attention
            The head at that inverse temperature.
        """
        value = self._value[0] if len(self._value) == 1 else Factored(*self._value)
        head = Attention(self._query, self._key, value, beta, key_bias=self._key_bias)
        head._kind = self._kind
        return head

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The matrices and β of the head as tensors, for storing; ``from_tensors`` is the inverse."""
        parts = {"query": self._query, "key": self._key, "beta": torch.tensor(self.beta, dtype=torch.float64)}
        parts |= {f"value{number}": factor for number, factor in enumerate(self._value)}
        return parts if self._key_bias is None else parts | {"key_bias": self._key_bias}

    @classmethod
    def from_tensors(cls, parts: Mapping[str, Tensor]) -> "Attention":
        """The head with these ``tensors``; its matrices are numpy arrays.

        Parameters
        ----------
        parts
            The matrices and β, as ``tensors`` has them.

        Returns
        -------
        Attention
            The head.
        """
        arrays = {name: part.numpy() for name, part in parts.items()}
        value = Factored(arrays["value0"], arrays["value1"]) if "value1" in arrays else arrays["value0"]
        return cls(arrays["query"], arrays["key"], value, float(arrays["beta"]), key_bias=arrays.get("key_bias"))

    def restore(self, values: np.ndarray) -> Array:
        """Values computed from the head, as the kind of array it was made from.

        Parameters
        ----------
        values
            A numpy array.

        Returns
        -------
        Array
            The same values as a list, numpy or torch: what the head's matrices were given as.
        """
        return self._kind.restore(values)

    def _dense_value(self, dtype: torch.dtype | None = None) -> Tensor:
        factors = [factor.to(dtype or factor.dtype) for factor in self._value]
        return factors[0] if len(factors) == 1 else factors[0] @ factors[1]

    def _like(self, tensor: Tensor) -> Tensor:
        """The tensor on the query's device; another dtype than the query's is refused."""
        if tensor.dtype != self._query.dtype:
            raise BadArray(f"query has dtype {self._query.dtype} but another matrix {tensor.dtype}; use one for all.")
        return tensor.to(self._query.device)

    def __repr__(self) -> str:
        bias = "" if self._key_bias is None else ", key_bias"
        return f"Attention(d={self.dimension}, k={len(self._query)}, beta={self.beta:g}{bias})"


Layer: TypeAlias = tuple[Attention, ...]
Heads: TypeAlias = "Attention | Sequence[Any]"
"""An argument of many verbs: one head, a list of layers, or nested lists (heads within layers)."""


def as_layers(heads: Heads) -> tuple[Layer, ...]:
    """Layers of heads, from one head, a list (a stack of layers) or nested lists (heads within a layer)."""
    if isinstance(heads, Attention):
        return ((heads,),)
    given: object = heads
    if not isinstance(given, Sequence) or not heads:
        raise BadArray("an Attention, a non-empty list of layers, or a list of lists of heads is needed.")
    layers = tuple(tuple(layer) if isinstance(layer, Sequence) else (layer,) for layer in heads)
    flat = [head for layer in layers for head in layer]
    if not all(layers) or not all(isinstance(head, Attention) for head in flat):
        raise BadArray("every layer must be an Attention or a non-empty list of Attention objects.")
    dimensions = sorted({head.dimension for head in flat})
    if len(dimensions) > 1:
        raise BadArray(f"the heads have dimensions {dimensions}; all must agree.")
    return layers


def as_one_layer(heads: Heads, verb: str) -> Layer:
    """The heads of a single layer; a deeper stack is refused, because the theory is about one layer."""
    layers = as_layers(heads)
    if len(layers) > 1:
        raise BadParameter(
            f"{verb} takes one layer, this stack has {len(layers)}; call it layer by layer "
            "(heads of one layer go in a nested list: [[head1, head2]])."
        )
    return layers[0]


def as_tokens_of(layer: Layer, x0: Array) -> tuple[Float[Tensor, "*batch n d"], Kind]:
    """Initial tokens x0 (…, n, d), checked, of the dimension of the heads; and their kind."""
    tokens, kind = as_tokens(x0, "x0")
    if tokens.shape[-1] != layer[0].dimension:
        heads = f"head{'s' * (len(layer) > 1)}"
        raise BadArray(f"x0 has dimension {tokens.shape[-1]}, the {heads} {layer[0].dimension}; they must agree.")
    return tokens, kind


def is_plain(layer: Layer) -> bool:
    """One head, no key bias: the case with a closed form (THEORY sections 3 and 4)."""
    return len(layer) == 1 and layer[0]._key_bias is None
