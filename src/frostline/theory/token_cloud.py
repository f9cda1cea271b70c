"""Cloud: tokens known by their number, mean and covariance, and atoms: single tokens beside them (THEORY eq. 18)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from frostline.arrays import Array, as_float64, as_number, as_tensor
from frostline.attention import Attention
from frostline.errors import BadArray, BadParameter, BadWeights
from frostline.results import Result

FEWEST = 3
"""The smallest cloud: two tokens have no spread but along one line, and are better given as atoms."""
MOST = 1e15
"""Largest number of tokens in a cloud."""
UNSYMMETRIC = 1e-6
"""A covariance may differ from its transpose by this share of its largest entry, as products in float32 do."""
INDEFINITE = 1e-6
"""A covariance may have an eigenvalue below zero by this share of its trace, as products in float32 do."""
THIRD_UP_TO = 64
"""The largest number of dimensions, or of keys, for which third cumulants are computed: d³ numbers, or dk²."""
BLOCK = 4_000_000
"""Entries of the largest array of logits, queries times tokens."""


class KeyFactors(NamedTuple):
    """The part of a covariance Σ that one head sees: covariances with its k keys Ky, and gᵀy where it has a bias.

    Attributes
    ----------
    token_key : Array
        cov(token, key), (d, k).
    key_key : Array
        cov(key, key), (k, k).
    total : float
        tr Σ, for the estimate of the error.
    """

    token_key: Array
    key_key: Array
    total: float


@dataclass(frozen=True, eq=False)
class Logits:
    """A cloud of ``count`` tokens seen by queries x.

    Mean μ and total variance of its tokens; mean s̄ and variance σ² of its logits; their covariance c with tokens, and
    the third cumulant κ₃(p,p,·) where it is known.
    """

    count: float
    tokens: Float[np.ndarray, "*n d"]
    total: Float[np.ndarray, " n"] | float
    mean: Float[np.ndarray, " n"]
    variance: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n d"]
    third: Float[np.ndarray, "n d"] | None

    def without(self, token: Float[np.ndarray, "n d"], logit: Float[np.ndarray, " n"]) -> "Logits":
        """The same cloud with one of its tokens taken out, for each query another: moments of the others."""
        others = self.count - 1
        away, above = token - self.tokens, logit - self.mean
        shift, step = -above / others, -away / others
        scale = self.count / others
        third = None
        if self.third is not None:
            second = self.variance + shift**2
            whole = self.third - 2 * shift[:, None] * self.covariance - step * second[:, None]
            third = scale * whole - ((above - shift) ** 2)[:, None] * (away - step) / others
        return Logits(
            count=others,
            tokens=self.tokens + step,
            total=np.maximum(scale * (self.total - (away**2).sum(1) / others), 0.0),
            mean=self.mean + shift,
            variance=np.maximum(scale * (self.variance - above**2 / others), 0.0),
            covariance=scale * (self.covariance - away * (above / others)[:, None]),
            third=third,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Cloud(Result):
    """Tokens known by their moments, and atoms: single tokens beside them. Arrays are kept as float64 numpy.

    Parameters
    ----------
    count : float
        N, the number of tokens of the cloud, at least 3; atoms are not counted.
    mean : Array
        The mean μ of the tokens, (d,).
    covariance : Array or KeyFactors
        Their covariance Σ, (d, d), symmetric and without negative eigenvalues (singular is allowed); or the factors of
        it that one head needs, which ``seen_by`` makes.
    atoms : Array, optional
        Places of single tokens beside the cloud, (a, d).
    weights : Array, optional
        Their weights (a,) > 0, in units of one token of the cloud; 1 each by default.
    tokens : Array, optional
        The tokens of the cloud (N, d). For each query the best of them then counts as an atom and cuts the cloud of
        the others (THEORY eq. 17′; 17″ where the moments are those of these tokens).
    third : Array, optional
        The third cumulant of the tokens, (d, d, d); (d, k, k) with factors. For the estimate of the error.
    in_sample : bool
        Whether mean and covariance are those of the very tokens that are attended to, and not of a population that
        they come from: the error is then smaller.

    Raises
    ------
    BadArray
        Shapes do not fit, an entry is not finite, or the covariance is not one.
    BadParameter
        ``count`` is below 3, or not the number of tokens.
    BadWeights
        A weight is not positive.

    Examples
    --------
    >>> Cloud(100, mean=[0.0, 0.6], covariance=[[0.3, 0.0], [0.0, 0.1]], atoms=[[1.0, 0.0]])
    Cloud(100 tokens and 1 atom in d = 2, by mean and covariance)
    """

    count: float
    mean: Array
    covariance: Array | KeyFactors
    # Any: given as None, atoms and weights are kept as empty arrays.
    atoms: Any = None
    weights: Any = None
    tokens: Any = None
    third: Any = None
    in_sample: bool = False

    def __post_init__(self) -> None:
        if not (FEWEST <= as_number(self.count, "count") <= MOST):
            raise BadParameter(
                f"count is {self.count}; a cloud has {FEWEST} tokens (give fewer as atoms) to {MOST:.0e}."
            )
        mean = as_float64(as_tensor(self.mean, "mean")[0])
        if mean.ndim != 1 or len(mean) < 2:
            raise BadArray(f"mean has shape {mean.shape}; one vector (d,) with d ≥ 2 is needed.")
        d = len(mean)
        atoms = _rows(self.atoms, "atoms", d)
        tokens = None if self.tokens is None else _rows(self.tokens, "tokens", d)
        if tokens is not None and len(tokens) != self.count:
            raise BadParameter(f"count is {self.count:g}, but there are {len(tokens)} tokens; they must agree.")
        checked = {
            "mean": mean,
            "covariance": _factors(self.covariance, d)
            if isinstance(self.covariance, KeyFactors)
            else _covariance(self.covariance, "covariance", d),
            "atoms": atoms,
            "weights": _atom_weights(self.weights, len(atoms)),
            "tokens": tokens,
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.third is not None:
            k = self.covariance.key_key.shape[0] if isinstance(self.covariance, KeyFactors) else d
            third = as_float64(as_tensor(self.third, "third")[0])
            if third.shape != (d, k, k):
                raise BadArray(f"third has shape {third.shape}; the third cumulant needs {(d, k, k)}.")
            object.__setattr__(self, "third", third)

    @classmethod
    def of(
        cls, tokens: Array, atoms: Array | None = None, weights: Array | None = None, *, keep: bool = True
    ) -> "Cloud":
        """The cloud of these tokens, with their mean and covariance, and up to d = 64 their third cumulant.

        Parameters
        ----------
        tokens : Array
            The tokens of the cloud (N, d), at least three, on the sphere or not.
        atoms : Array, optional
            Places of single tokens beside them, (a, d).
        weights : Array, optional
            Weights of the atoms (a,), in units of one token.
        keep : bool
            Whether the tokens stay in the cloud, so that the best of them is known to every query (eq. 17′); without
            them it is described by moments alone (eq. 17).

        Returns
        -------
        Cloud
            The cloud.

        Raises
        ------
        BadArray
            ``tokens`` are fewer than three, or shapes do not fit.

        Examples
        --------
        >>> Cloud.of(np.eye(4), keep=False).mean
        array([0.25, 0.25, 0.25, 0.25])
        """
        rows = as_float64(as_tensor(tokens, "tokens")[0])
        if rows.ndim != 2 or len(rows) < FEWEST:
            raise BadArray(f"tokens have shape {rows.shape}; a cloud needs (N, d) with N ≥ {FEWEST}.")
        mean = rows.mean(0)
        centred = rows - mean
        third = _third(centred, centred) if rows.shape[1] <= THIRD_UP_TO else None
        return cls(
            count=len(rows),
            mean=mean,
            covariance=centred.T @ centred / len(rows),
            atoms=atoms,
            weights=weights,
            tokens=rows if keep else None,
            third=third,
            in_sample=True,
        )

    @property
    def dimension(self) -> int:
        """d, the dimension of the tokens."""
        return len(self.mean)

    @property
    def total_variance(self) -> float:
        """tr Σ."""
        return self.covariance.total if isinstance(self.covariance, KeyFactors) else float(np.trace(self.covariance))

    def seen_by(self, head: Attention) -> "Cloud":
        """The same cloud with the covariances that this head needs: (d, k) and (k, k) numbers instead of (d, d).

        Parameters
        ----------
        head
            The head that looks at the cloud.

        Returns
        -------
        Cloud
            The cloud, for this head only.

        Raises
        ------
        BadParameter
            The cloud is already seen by a head.
        """
        self._check_head(head)
        if isinstance(self.covariance, KeyFactors):
            raise BadParameter("this cloud is already seen by a head; keep the cloud with the full covariance.")
        keys = _keys(head)
        token_key = self.covariance @ keys.T
        third = None
        if self.third is not None:
            third = np.einsum("dij,ki,lj->dkl", self.third, keys, keys, optimize=True)
        elif self.tokens is not None and len(keys) <= THIRD_UP_TO:
            centred = self.tokens - self.tokens.mean(0)
            third = _third(centred, centred @ keys.T)
        return replace(self, covariance=KeyFactors(token_key, keys @ token_key, self.total_variance), third=third)

    def logits(self, head: Attention, x: Float[np.ndarray, "n d"]) -> Logits:
        """Mean and variance of the cloud's logits for queries x, their covariance with its tokens, and κ₃(p,p,·).

        Parameters
        ----------
        head
            The head that looks at the cloud.
        x
            The queries (n, d).

        Returns
        -------
        Logits
            These moments, for each query.
        """
        self._check_head(head)
        p = directions(head, x)
        mean = p @ self.mean
        if isinstance(self.covariance, KeyFactors):
            self._check_keys(head)
            query = _queries(head, x)
            covariance = query @ self.covariance.token_key.T
            variance = np.einsum("nk,kl,nl->n", query, self.covariance.key_key, query, optimize=True)
        else:
            query = p
            covariance = p @ self.covariance
            variance = (covariance * p).sum(1)
        third = None if self.third is None else np.einsum("dkl,nk,nl->nd", self.third, query, query, optimize=True)
        seen = Logits(self.count, self.mean, self.total_variance, mean, np.maximum(variance, 0.0), covariance, third)
        if third is None and self.tokens is not None:
            seen = replace(seen, third=self._third_of_tokens(p, seen.variance))
        return seen

    def tilted_by(self, head: Attention) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, " d"]]:
        """ΣBᵀ and Σg: the tilt of the cloud's mean is β(ΣBᵀx + Σg) for a query x (THEORY eq. 16).

        Parameters
        ----------
        head
            The head that looks at the cloud.

        Returns
        -------
        tuple of ndarray
            ΣBᵀ (d, d) and Σg (d,).
        """
        self._check_head(head)
        if isinstance(self.covariance, KeyFactors):
            self._check_keys(head)
            token_key = self.covariance.token_key
        else:
            token_key = self.covariance @ _keys(head).T
        query = as_float64(head.tensors["query"])
        shift = np.zeros(self.dimension) if head.key_bias is None else token_key[:, -1]
        return token_key[:, : len(query)] @ query, shift

    def best(
        self, head: Attention, x: Float[np.ndarray, "n d"]
    ) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """The token of the cloud with the largest logit, for each query.

        Parameters
        ----------
        head
            The head that looks at the cloud.
        x
            The queries (n, d).

        Returns
        -------
        tuple of ndarray
            The index of the token and its logit, (n,) each.
        """
        p = directions(head, x)
        index, logit = np.zeros(len(p), dtype=np.int64), np.zeros(len(p))
        for rows in self.blocks(len(p)):
            logits = p[rows] @ self.tokens.T
            index[rows] = logits.argmax(1)
            logit[rows] = logits.max(1)
        return index, logit

    def _third_of_tokens(
        self, p: Float[np.ndarray, "n d"], variance: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "n d"]:
        """κ₃(p,p,·) for each query, from the tokens themselves."""
        centred = self.tokens - self.tokens.mean(0)
        parts = [((p[rows] @ centred.T) ** 2 - variance[rows, None]) @ centred for rows in self.blocks(len(p))]
        return np.concatenate(parts) / len(centred)

    def blocks(self, queries: int) -> Iterator[slice]:
        """Slices of queries whose logits for all tokens fit into memory.

        Parameters
        ----------
        queries
            The number of queries.

        Returns
        -------
        iterator of slice
            Slices that cover them all.
        """
        size = max(1, BLOCK // len(self.tokens))
        return (slice(start, start + size) for start in range(0, queries, size))

    def describe(self) -> str:
        """The number of tokens and atoms, and the kind of description."""
        known = "tokens themselves" if self.tokens is not None else "mean and covariance"
        atoms = f" and {len(self.atoms)} atom{'s' * (len(self.atoms) != 1)}" if len(self.atoms) else ""
        return f"{self.count:g} tokens{atoms} in d = {self.dimension}, by {known}"

    def _check_head(self, head: Attention) -> None:
        if head.dimension != self.dimension:
            raise BadArray(f"the head has dimension {head.dimension}, the cloud {self.dimension}; they must agree.")

    def _check_keys(self, head: Attention) -> None:
        keys, needed = len(self.covariance.key_key), len(_keys(head))
        if keys != needed:
            raise BadArray(
                f"the cloud is seen by a head with {keys} keys, this head has {needed} (a key bias counts as one); "
                "call seen_by with this head."
            )


def directions(head: Attention, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """p = β(Bᵀx + g) for each query: the logit of token y is ⟨p,y⟩ (THEORY section 2)."""
    rows = torch.from_numpy(x)
    return head.beta * head.to(rows).logit_direction(rows).numpy()


def _keys(head: Attention) -> Float[np.ndarray, "k d"]:
    """K, and the key bias as one more row."""
    key = as_float64(head.tensors["key"])
    return key if head.key_bias is None else np.vstack([key, as_float64(head.key_bias)])


def _queries(head: Attention, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
    """βQx, and β for the key bias: with ``_keys`` they give the logits."""
    query = x @ as_float64(head.tensors["query"]).T
    return head.beta * (query if head.key_bias is None else np.column_stack([query, np.ones(len(x))]))


def _third(centred: Float[np.ndarray, "N d"], keys: Float[np.ndarray, "N k"]) -> Float[np.ndarray, "d k k"]:
    """Σ_j y_j ⊗ k_j ⊗ k_j / N, a key at a time: (N, k) numbers in memory, not (N, k, k)."""
    parts = [centred.T @ (keys * keys[:, [index]]) for index in range(keys.shape[1])]
    return np.stack(parts, axis=1) / len(centred)


def _rows(array: Array | None, name: str, d: int) -> Float[np.ndarray, "a d"]:
    if array is None:
        return np.zeros((0, d))
    rows = as_float64(as_tensor(array, name)[0])
    if rows.ndim != 2 or rows.shape[1] != d:
        raise BadArray(f"{name} has shape {rows.shape}; rows (…, {d}) of the dimension of the mean are needed.")
    return rows


def _atom_weights(weights: Array | None, atoms: int) -> Float[np.ndarray, " a"]:
    if weights is None:
        return np.ones(atoms)
    values = as_float64(as_tensor(weights, "weights")[0])
    if values.shape != (atoms,):
        raise BadWeights(f"weights has shape {values.shape}; {atoms} atoms need ({atoms},).")
    if not (values > 0).all():
        raise BadWeights(
            f"{int((~(values > 0)).sum())} weights of atoms are not positive, the least is {values.min():.3g}."
        )
    return values


def _covariance(matrix: Array, name: str, d: int) -> Float[np.ndarray, "d d"]:
    """A symmetric matrix without negative eigenvalues; what rounding left of either is taken out."""
    values = as_float64(as_tensor(matrix, name)[0])
    if values.shape != (d, d):
        raise BadArray(f"{name} has shape {values.shape}; ({d}, {d}) is needed.")
    skew = float(np.abs(values - values.T).max())
    if not skew <= UNSYMMETRIC * float(np.abs(values).max()):
        raise BadArray(f"{name} is not symmetric: it differs from its transpose by up to {skew:.3g}.")
    values = (values + values.T) / 2
    least = float(np.linalg.eigvalsh(values)[0])
    if not least >= -INDEFINITE * float(np.trace(values)):
        raise BadArray(f"{name} has the negative eigenvalue {least:.3g}; a covariance has none.")
    return values


def _factors(factors: KeyFactors, d: int) -> KeyFactors:
    token_key = as_float64(as_tensor(factors.token_key, "token_key")[0])
    if token_key.ndim != 2 or token_key.shape[0] != d:
        raise BadArray(f"token_key has shape {token_key.shape}; ({d}, k) is needed.")
    key_key = _covariance(factors.key_key, "key_key", token_key.shape[1])
    total = as_number(factors.total, "total")
    if not (0 <= total < np.inf):
        raise BadArray(f"total is {total:.3g}; the trace of a covariance is finite and ≥ 0.")
    return KeyFactors(token_key, key_key, total)
