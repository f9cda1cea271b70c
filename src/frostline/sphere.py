"""Unit vectors: normalise, tangent, retract, geodesic. Tokens are the last axis; leading axes are free."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from frostline.arrays import Array, Kind, as_tensor
from frostline.errors import BadArray, OffSphere

# A token farther than this from the sphere is refused, not mended: rounding of a unit vector that was computed
# in the given precision stays far below it, a forgotten normalisation far above.
OFF_SPHERE = {torch.float64: 1e-8, torch.float32: 1e-4}


def normalise(x: Array) -> Array:
    """x/|x| along the last axis. A zero vector has no direction and is refused.

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
    """P_x v = v − ⟨x,v⟩x, the part of v tangent to the sphere at the unit vector x."""
    (point, _), (vector, kind) = as_tensor(x, "x"), as_tensor(v, "v")
    return kind.restore(project(point, vector))


def retract(x: Array, v: Array) -> Array:
    """(x+v)/|x+v|: from x along the tangent vector v, back on the sphere (one layer, THEORY section 2)."""
    (point, _), (vector, kind) = as_tensor(x, "x"), as_tensor(v, "v")
    return kind.restore(as_tensor(normalise(point + vector), "x + v")[0])


def geodesic(x: Array, y: Array) -> Array:
    """Angle between unit vectors in [0, π], accurate near 0 and near π (where arccos of the dot product is not)."""
    (left, kind), (right, _) = as_tensor(x, "x"), as_tensor(y, "y")
    gap, total = torch.linalg.vector_norm(left - right, dim=-1), torch.linalg.vector_norm(left + right, dim=-1)
    return kind.restore(2 * torch.atan2(gap, total))


def unit(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """Tensors in, tensors out; no checks: the inner loop's normalise."""
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def project(x: Float[Tensor, "... d"], v: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """Tensors in, tensors out; no checks: the inner loop's tangent."""
    return v - (x * v).sum(-1, keepdim=True) * x


def row_norms(x: np.ndarray) -> np.ndarray:
    """|x| along the last axis, without under- or overflow of the squares."""
    scale = np.abs(x).max(-1, keepdims=True)
    scale = np.where(scale > 0, scale, 1.0)
    return np.asarray(np.linalg.norm(x / scale, axis=-1) * scale[..., 0])


def unit_rows(x: np.ndarray) -> np.ndarray:
    """numpy's normalise, without checks."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def as_tokens(x: Array, name: str = "tokens") -> tuple[Float[Tensor, "*batch n d"], Kind]:
    """Checked tokens (…, n, d): finite, at least one, d ≥ 2, on the sphere."""
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
