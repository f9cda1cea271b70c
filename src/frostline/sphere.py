"""Unit vectors: normalise, tangent, retract, geodesic. Coordinates are the last axis; leading axes are free."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from frostline.arrays import Array, Kind, as_tensor
from frostline.errors import BadArray, OffSphere

__all__ = ["geodesic", "normalise", "retract", "tangent"]

OFF_SPHERE = {torch.float64: 1e-8, torch.float32: 1e-4}
"""Tokens with | |x| − 1 | above this are refused, by dtype.

Rounding of a unit vector computed in that precision stays far below, a forgotten normalisation far above.
"""


def normalise(x: Array) -> Array:
    """x/|x| along the last axis.

    Parameters
    ----------
    x : Array
        Vectors (…, d).

    Returns
    -------
    Array
        Unit vectors (…, d), of the kind and dtype of ``x``.

    Raises
    ------
    BadArray
        ``x`` is empty, not finite, or has a zero vector, which has no direction.

    Examples
    --------
    >>> normalise([[3.0, 4.0]])
    array([[0.6, 0.8]])
    """
    tensor, kind = as_tensor(x, "x")
    if not tensor.numel():
        raise BadArray(f"x is empty, of shape {tuple(tensor.shape)}; there is nothing to normalise.")
    # Scale first: the square of an entry may over- or underflow although the entry does not.
    scale = tensor.abs().amax(-1, keepdim=True)
    if not bool((scale > 0).all()):
        index = tuple(torch.nonzero(scale[..., 0] == 0)[0].tolist())
        raise BadArray(f"the vector at index {index} is zero and has no direction; remove it.")
    return kind.restore(unit(tensor / scale))


def tangent(x: Array, v: Array) -> Array:
    """P_x v = v − ⟨x,v⟩x, the part of v that is tangent to the sphere at x.

    Parameters
    ----------
    x : Array
        Unit vectors (…, d); they are not checked to be of unit length.
    v : Array
        Vectors (…, d).

    Returns
    -------
    Array
        Tangent vectors (…, d), of the kind of ``v``.

    Raises
    ------
    BadArray
        An argument is not a finite array.

    Examples
    --------
    >>> tangent([1.0, 0.0], [3.0, 4.0])
    array([0., 4.])
    """
    (point, _), (vector, kind) = as_tensor(x, "x"), as_tensor(v, "v")
    return kind.restore(project(point, vector))


def retract(x: Array, v: Array) -> Array:
    """(x+v)/|x+v|: from x along the tangent vector v and back onto the sphere (one layer, THEORY section 2).

    Parameters
    ----------
    x : Array
        Unit vectors (…, d).
    v : Array
        Tangent vectors (…, d).

    Returns
    -------
    Array
        Unit vectors (…, d), of the kind of ``v``.

    Raises
    ------
    BadArray
        An argument is not a finite array, or x + v is zero.

    Examples
    --------
    >>> retract([1.0, 0.0], [0.0, 0.75])
    array([0.8, 0.6])
    """
    (point, _), (vector, kind) = as_tensor(x, "x"), as_tensor(v, "v")
    return kind.restore(as_tensor(normalise(point + vector), "x + v")[0])


def geodesic(x: Array, y: Array) -> Array:
    """Angle between unit vectors: 2·atan2(|x − y|, |x + y|), accurate near 0 and π, where arccos⟨x, y⟩ is not.

    Parameters
    ----------
    x, y : Array
        Unit vectors (…, d); leading axes are broadcast.

    Returns
    -------
    Array
        Angles (…,) in [0, π] radians, of the kind of ``x``.

    Raises
    ------
    BadArray
        An argument is not a finite array.

    Examples
    --------
    >>> print(geodesic([1.0, 0.0], [0.0, 1.0]).round(6))
    1.570796
    """
    (left, kind), (right, _) = as_tensor(x, "x"), as_tensor(y, "y")
    gap, total = torch.linalg.vector_norm(left - right, dim=-1), torch.linalg.vector_norm(left + right, dim=-1)
    return kind.restore(2 * torch.atan2(gap, total))


def unit(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """``normalise`` for tensors, without checks: for inner loops."""
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def project(x: Float[Tensor, "... d"], v: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """``tangent`` for tensors, without checks: for inner loops."""
    return v - (x * v).sum(-1, keepdim=True) * x


def row_norms(x: np.ndarray) -> np.ndarray:
    """|x| along the last axis of a numpy array; squares neither under- nor overflow."""
    scale = np.abs(x).max(-1, keepdims=True)
    scale = np.where(scale > 0, scale, 1.0)
    return np.asarray(np.linalg.norm(x / scale, axis=-1) * scale[..., 0])


def unit_rows(x: np.ndarray) -> np.ndarray:
    """``normalise`` for numpy arrays, without checks."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def tangent_projectors(x: Float[np.ndarray, "*batch d"]) -> Float[np.ndarray, "*batch d d"]:
    """P_x = I − xxᵀ for unit vectors x, as matrices."""
    return np.eye(x.shape[-1]) - x[..., :, None] * x[..., None, :]


def as_tokens(x: Array, name: str = "tokens") -> tuple[Float[Tensor, "*batch n d"], Kind]:
    """Tokens (…, n, d), checked: finite, at least one, d ≥ 2, on the sphere; and their kind."""
    tensor, kind = as_tensor(x, name)
    if tensor.ndim < 2 or 0 in tensor.shape:
        raise BadArray(f"{name} has shape {tuple(tensor.shape)}; tokens are rows, (…, n, d) with n ≥ 1.")
    if tensor.shape[-1] < 2:
        raise BadArray(f"{name} has dimension d = 1, where the sphere is two points and nothing moves; use d ≥ 2.")
    off = (torch.linalg.vector_norm(tensor, dim=-1) - 1).abs()
    if not bool((off <= OFF_SPHERE[tensor.dtype]).all()):
        count, worst = int((off > OFF_SPHERE[tensor.dtype]).sum()), float(off.max())
        raise OffSphere(
            f"{count} of {off.numel()} {name} are off the unit sphere, by up to {worst:.3g}; "
            "pass frostline.sphere.normalise(tokens) if only their directions matter."
        )
    return tensor, kind
