"""Arrays in are numpy, torch or lists; arrays out are the same kind, dtype and device.

Conversions between kinds and checks of entries are made here and nowhere else.
"""

import math
import operator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from frostline.errors import BadArray, BadParameter

Array: TypeAlias = Any
"""An argument: a numpy array, a torch tensor, or nested lists of numbers (read as float64)."""

_DTYPES = (torch.float32, torch.float64)
"""The precisions that are computed in; others are refused."""


@dataclass(frozen=True)
class Kind:
    """Library, dtype and device of an argument, so that results can be given back as the same."""

    library: str
    dtype: torch.dtype
    device: torch.device

    def restore(self, values: Tensor | np.ndarray) -> Array:
        """The values as this kind (complex values stay complex)."""
        tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.asarray(values, order="C"))
        dtype = self.dtype if not tensor.is_complex() else self.dtype.to_complex()
        tensor = tensor.to(device=self.device, dtype=dtype)
        return tensor.numpy(force=True) if self.library == "numpy" else tensor


def as_tensor(array: Array, name: str) -> tuple[Tensor, Kind]:
    """A real, finite float tensor that shares no memory with ``array``, and the kind to restore."""
    if isinstance(array, Tensor):
        library, tensor = "torch", array.detach()
    else:
        library = "numpy"
        try:
            if isinstance(array, np.ma.MaskedArray):
                raise ValueError("it is masked; fill it first")
            values = np.asarray(array)
            if values.dtype.kind == "c":
                raise ValueError("it is complex")
            if values.dtype.kind in "iub" or not isinstance(array, np.ndarray):
                values = values.astype(np.float64)
            contiguous = np.ascontiguousarray(values)
            # torch warns of read-only memory; the tensor is cloned below in any case.
            tensor = torch.from_numpy(contiguous if contiguous.flags.writeable else contiguous.copy())
        except (TypeError, ValueError, OverflowError) as error:
            raise BadArray(f"{name} is not an array of real numbers: {error}.") from None
    if tensor.is_complex():
        raise BadArray(f"{name} is complex; frostline works with real matrices and tokens.")
    if tensor.layout != torch.strided or tensor.is_meta:
        raise BadArray(f"{name} is a sparse or meta tensor; pass a dense one.")
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    if tensor.dtype not in _DTYPES:
        raise BadArray(f"{name} has dtype {tensor.dtype}; pass float64 (the default) or float32.")
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        bad = int((~finite).sum())
        first = tuple(torch.nonzero(~finite)[0].tolist())
        raise BadArray(f"{name} has {bad} NaN or infinite entries, the first at index {first}; remove or mend them.")
    return tensor.clone(), Kind(library, tensor.dtype, tensor.device)


def as_matrix(array: Array, name: str) -> tuple[Tensor, Kind]:
    """A finite (rows, columns) matrix."""
    tensor, kind = as_tensor(array, name)
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise BadArray(f"{name} has shape {tuple(tensor.shape)}; a matrix (rows, columns) is needed.")
    return tensor, kind


def as_times(times: Array, name: str, *, until: float = math.inf) -> np.ndarray:
    """Times as float64: at least one, ascending, within [0, until]."""
    try:
        values = np.atleast_1d(np.array(as_float64(times)))
    except (TypeError, ValueError, OverflowError):
        raise BadParameter(f"{name} is {times!r}; ascending times are needed.") from None
    inside = (values >= 0) & (values <= until) & (values < math.inf)
    if values.ndim != 1 or not len(values) or not inside.all() or not (np.diff(values) > 0).all():
        top = "" if until == math.inf else f" up to {until:g}"
        raise BadParameter(f"{name} must be one or more ascending times from 0{top}; got {values.tolist()[:8]}.")
    return values


def as_count(value: Any, name: str) -> int:
    """A whole number ≥ 1."""
    try:
        number = operator.index(value)
    except TypeError:
        raise BadParameter(f"{name} is {value!r}; a whole number is needed.") from None
    if number < 1:
        raise BadParameter(f"{name} is {number}; it must be at least 1.")
    return number


def as_number(value: Any, name: str) -> float:
    """A number, possibly infinite or NaN; the caller checks its range."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise BadParameter(f"{name} is {value!r}; a number is needed.") from None


def as_positive(value: Any, name: str) -> float:
    """A finite number > 0."""
    number = as_number(value, name)
    if not (0 < number < math.inf):
        raise BadParameter(f"{name} is {number:g}; it must be finite and > 0.")
    return number


def as_order(value: Any) -> float:
    """p of W_p: a finite number ≥ 1."""
    number = as_number(value, "p")
    if not (1 <= number < math.inf):
        raise BadParameter(f"p is {number:g}; the order of a Wasserstein distance is finite and ≥ 1.")
    return number


def as_float64(array: Array) -> np.ndarray:
    """Tensor or array as float64 numpy: the theory is always evaluated in double precision on the CPU."""
    if isinstance(array, Tensor):
        return array.detach().to(device="cpu", dtype=torch.float64).numpy()
    return np.asarray(array, dtype=np.float64)


def evenly_spread(count: int, wanted: int) -> list[int]:
    """At most ``wanted`` of the indices below ``count``, evenly spread, the first and the last among them.

    >>> evenly_spread(10, 4)
    [0, 3, 6, 9]
    """
    return [int(k) for k in np.unique(np.linspace(0, count - 1, min(wanted, count)).round())]
