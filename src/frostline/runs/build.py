"""The heads, tokens and stepper that a spec describes."""

from collections.abc import Callable
from tokenize import TokenError
from typing import Any

import numpy as np
import torch

from frostline import sample
from frostline.attention import Attention
from frostline.dynamics.steppers import RK4, Adaptive, Euler, Stepper
from frostline.errors import BadSpec
from frostline.runs.schema import ComponentSpec, HeadSpec, LayerSpec, Matrix, Spec, TokensSpec, read_named_file
from frostline.sphere import OFF_SPHERE, normalise
from frostline.theory import densities


def build_heads(spec: Spec) -> list[list[Attention]]:
    """The layers of heads the spec describes."""
    if spec.layers is not None and (spec.heads is not None or spec.B is not None or spec.Q is not None):
        raise BadSpec("the spec gives layers beside heads, B or Q; put all matrices under [[layers]].")
    layers: list[LayerSpec] = spec.layers if spec.layers is not None else [spec]
    if not layers or any(layer.heads == [] for layer in layers):
        raise BadSpec("the spec has an empty list of layers or heads; give at least one.")
    built = []
    for number, layer in enumerate(layers):
        where = f"layers[{number}]" if spec.layers is not None else "the spec"
        heads: list[HeadSpec] = [layer]
        if layer.heads is not None:
            if any(matrix is not None for matrix in (layer.B, layer.Q, layer.K)):
                raise BadSpec(f"{where} gives heads beside B, Q or K; put them under heads.")
            heads = layer.heads
        built.append([_build_head(head, layer, spec, where) for head in heads])
    return built


def token_count(spec: Spec) -> int:
    """The number of tokens in the spec; 0 when they come from a file."""
    return spec.tokens if isinstance(spec.tokens, int) else spec.tokens.count or 0


def build_stepper(spec: Spec) -> Stepper:
    """The named stepper; by default Euler when the spec has a step, else the adaptive method."""
    name = spec.stepper or ("adaptive" if spec.step is None else "euler")
    if name == "adaptive":
        return Adaptive(**({} if spec.tolerance is None else {"tolerance": spec.tolerance}), step=spec.step)
    if spec.tolerance is not None:
        raise BadSpec(f"tolerance goes with the adaptive stepper, not with {name}; leave one of them out.")
    return Euler(spec.step) if name == "euler" else RK4(spec.step)


def build_tokens(spec: Spec) -> tuple[np.ndarray, np.ndarray | None]:
    """Initial tokens (n, d) and their weights (None when equal)."""
    tokens = spec.tokens if isinstance(spec.tokens, TokensSpec) else TokensSpec(count=spec.tokens)
    _refuse_unused(tokens, "tokens")
    if tokens.distribution == "file":
        if tokens.path is None:
            raise BadSpec('tokens.distribution = "file" needs tokens.path, a .npy file of unit vectors (n, d).')
        if not tokens.path.endswith(".npy"):
            raise BadSpec(f"tokens.path = {tokens.path!r} is not a .npy file.")
        if tokens.count is not None or tokens.antipodal:
            raise BadSpec("tokens from a file are taken as they are; leave count (--tokens) and antipodal out.")
        return _load_tokens(tokens.path), None
    if spec.seed < 0:
        raise BadSpec(f"seed is {spec.seed}; it must be ≥ 0.")
    if tokens.count is None:
        raise BadSpec("tokens.count is missing; say how many tokens.")
    if tokens.antipodal and tokens.count % 2:
        raise BadSpec(f"tokens.antipodal needs an even count, got {tokens.count}.")
    count = tokens.count // 2 if tokens.antipodal else tokens.count
    if tokens.distribution == "nodes":
        return _build_nodes(tokens, count, spec)
    if tokens.distribution == "mixture":
        if not tokens.components:
            raise BadSpec('tokens.distribution = "mixture" needs [[tokens.components]], each with a weight.')
        parts = [_sampler(part, spec.dimension) for part in tokens.components]
        x = sample.mixture(count, parts, [part.weight for part in tokens.components], seed=spec.seed)
    else:
        x = _sampler(tokens, spec.dimension)(count, np.random.default_rng(spec.seed))
    return (sample.antipodal(x) if tokens.antipodal else x), None


def build_density(spec: Spec) -> densities.Mixture | None:
    """The density that the initial tokens are drawn from; None where none is known that is positive everywhere."""
    tokens = spec.tokens if isinstance(spec.tokens, TokensSpec) else TokensSpec(count=spec.tokens)
    if tokens.distribution == "mixture":
        parts = [_density_of(part, spec.dimension) for part in tokens.components or []]
        if not parts or any(part is None for part in parts):
            return None
        weights = [part.weight for part in tokens.components or []]
        whole = densities.mixture([part for part in parts if part is not None], weights)
    else:
        part = _density_of(tokens, spec.dimension)
        if part is None:
            return None
        whole = part
    if not tokens.antipodal:
        return whole
    return densities.mixture([whole, densities.Mixture(-whole.parameters, whole.weights)], [0.5, 0.5])


def _density_of(part: TokensSpec | ComponentSpec, dimension: int) -> densities.Mixture | None:
    """Caps vanish somewhere, and of a file nothing is known."""
    if part.distribution not in ("uniform", "vmf", "nodes"):
        return None
    if part.mean is None:
        return densities.uniform(dimension)
    return densities.vmf(part.mean, part.concentration or 0.0)


def _build_nodes(tokens: TokensSpec, count: int, spec: Spec) -> tuple[np.ndarray, np.ndarray]:
    """Weighted quadrature nodes of the uniform or a von Mises-Fisher density."""
    log_density = None
    if tokens.mean is not None:
        mean = np.asarray(normalise(tokens.mean))
        if len(mean) != spec.dimension:
            raise BadSpec(f"tokens.mean has {len(mean)} entries, but dimension = {spec.dimension}.")
        pull = (tokens.concentration or 0.0) * mean
        log_density = lambda x: x @ pull  # noqa: E731
    x, weights = sample.nodes(count, spec.dimension, log_density=log_density, seed=spec.seed)
    if tokens.antipodal:
        return sample.antipodal(x), np.concatenate([weights, weights]) / 2
    return x, weights


USED_BY = {
    "mean": ("vmf", "nodes"),
    "concentration": ("vmf", "nodes"),
    "centres": ("caps",),
    "angle": ("caps",),
    "components": ("mixture",),
    "path": ("file",),
}
"""The distributions that use each key of ``tokens``."""


def _refuse_unused(part: TokensSpec | ComponentSpec, where: str) -> None:
    """Raise BadSpec for a key that its distribution does not use."""
    for key, users in USED_BY.items():
        if getattr(part, key, None) is not None and part.distribution not in users:
            raise BadSpec(f"{where}.{key} goes with {' or '.join(users)}, not with {part.distribution!r}.")


def _sampler(part: TokensSpec | ComponentSpec, dimension: int) -> Callable[[int, np.random.Generator], np.ndarray]:
    """The function that draws n tokens of this distribution."""
    _refuse_unused(part, "tokens")
    if part.distribution == "vmf":
        if part.mean is None or part.concentration is None:
            raise BadSpec('distribution = "vmf" needs mean and concentration.')
        mean, concentration = part.mean, part.concentration
        return lambda n, rng: sample.vmf(n, mean, concentration, seed=rng)
    if part.distribution == "caps":
        if part.centres is None or part.angle is None:
            raise BadSpec('distribution = "caps" needs centres (a list of vectors) and angle.')
        centres, angle = part.centres, part.angle
        return lambda n, rng: sample.caps(n, centres, angle, seed=rng)
    return lambda n, rng: sample.uniform(n, dimension, seed=rng)


def _build_head(head: HeadSpec, layer: HeadSpec, spec: Spec, where: str) -> Attention:
    d = spec.dimension

    def inherited(name: str, default: Any = None) -> Any:
        return next((v for v in (getattr(part, name) for part in (head, layer, spec)) if v is not None), default)

    beta, bias = inherited("beta"), inherited("key_bias")
    if beta is None:
        raise BadSpec(f"{where} has no beta; give one, for example beta = 100.0.")
    V = _matrix(inherited("V", "identity"), d, f"V of {where}")
    if head.B is not None and head.Q is None and head.K is None:
        return Attention.from_matrices(_matrix(head.B, d, f"B of {where}"), V, beta, key_bias=bias)
    if head.B is None and head.Q is not None and head.K is not None:
        Q, K = _matrix(head.Q, d, f"Q of {where}"), _matrix(head.K, d, f"K of {where}")
        return Attention(Q, K, V, beta, key_bias=bias)
    raise BadSpec(f"{where} needs either B or both Q and K.")


def _matrix(value: Matrix, d: int, name: str) -> np.ndarray:
    matrix = _read_matrix(value, d, name)
    if matrix.shape[-1:] != (d,):
        raise BadSpec(f"{name} has shape {matrix.shape}, but dimension = {d}; they must agree.")
    return matrix


def _read_matrix(value: Matrix, d: int, name: str) -> np.ndarray:
    if isinstance(value, str):
        if value == "identity":
            return np.eye(d)
        if value.endswith(".npy"):
            return _load(value)
        raise BadSpec(
            f'{name} is {value!r}; write rows, one list for a diagonal, "identity", or the path of a .npy file.'
        )
    rows = [row for row in value if isinstance(row, list)]
    if value and not rows:
        return np.diag(np.asarray(value, dtype=np.float64))
    lengths = [len(row) for row in rows]
    if len(rows) != len(value) or len(set(lengths)) != 1:
        raise BadSpec(f"{name} has rows of lengths {lengths}; all rows must be lists of the same length.")
    return np.asarray(rows, dtype=np.float64)


def _load(path: str) -> np.ndarray:
    read_named_file(path)
    try:
        matrix = np.asarray(np.load(path, allow_pickle=False))
    except (ValueError, EOFError, OSError, SyntaxError, OverflowError, MemoryError, TokenError) as error:
        raise BadSpec(f"{path!r} is not a readable .npy array of numbers: {error}.") from None
    if matrix.dtype.kind not in "fiu" or matrix.ndim != 2:
        raise BadSpec(f"{path!r} holds {matrix.dtype} of shape {matrix.shape}; a matrix of real numbers is needed.")
    return matrix.astype(np.float64)


def _load_tokens(path: str) -> np.ndarray:
    """Unit vectors from a file; float32 ones are unit only to 1e-7 and are made so exactly."""
    rows = _load(path)
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / size if (np.abs(size - 1) <= OFF_SPHERE[torch.float32]).all() else rows
