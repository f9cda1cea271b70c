"""The mean map on a GPU (Triton) for 2 to 8 dimensions: float32 where that is enough, float64 where it is not.

Sources are sorted into blocks of close ones. A logit is ⟨p, c⟩ − shift, in float64, once for every query and block,
plus ⟨p, y − c⟩ in float32, where p is large but y − c small: what the difference form (THEORY eq. 4) is for, with fewer
operations. Sums within a block are relative to its centre, those over blocks in float64. Before, every query's largest
logit is found, its shift; blocks that cannot matter are left out.
"""

import linecache
import math
from functools import cache
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from frostline.dynamics.mean_map.dense import WIDEST, log_range
from frostline.errors import BadParameter

DIMENSIONS = range(2, 9)
"""Dimensions that the kernel is written out for."""
LEAST_TOLERANCE = 1e-12
"""The smallest tolerance that is met in float64."""
SINGLE = 1e-7
"""The smallest tolerance that is met in float32."""
WIDEST_SINGLE = 40.0
"""How far logarithms of weights may be apart in float32."""
SOURCES = (1024, 256, 128)
"""Sources in a block: many where few can be left out, and where float32 is good enough for all of them."""
TILE = (64, 8, 2)
"""Queries and sources at a time, and warps."""
SAFE = 60.0
"""Exponents of two that sums may have above a query's shift."""


def cuda(
    p: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    log_weights: Float[Tensor, "*#batch n"] | None,
    tolerance: float,
) -> Float[Tensor, "*batch q d"]:
    """Σ_j w_j e^{⟨p,y_j⟩} y_j / Σ_j w_j e^{⟨p,y_j⟩}, within ``tolerance``, rounding aside."""
    reason = unable(p, log_weights, tolerance)
    if reason is not None:
        raise BadParameter(f'the cuda engine cannot do this: {reason}; use engine="auto" or "dense".')
    d, n = p.shape[-1], y.shape[-2]
    logs = None if log_weights is None else log_weights.expand(y.shape[:-1]).reshape(-1, n)
    members = zip(p.reshape(-1, p.shape[-2], d), y.reshape(-1, n, d), strict=True)
    means = [
        _one(queries.double(), sources.double(), None if logs is None else logs[number].double(), tolerance)
        for number, (queries, sources) in enumerate(members)
    ]
    return torch.stack(means).reshape(p.shape).to(y.dtype)


def unable(p: Float[Tensor, "*batch q d"], log_weights: Tensor | None, tolerance: float) -> str | None:
    """The reason why this engine cannot do it; None where it can."""
    if not p.is_cuda:
        return "the tokens are not on a GPU"
    if p.shape[-1] not in DIMENSIONS:
        return f"d = {p.shape[-1]} is not 2 to 8"
    if tolerance < LEAST_TOLERANCE:
        return f"a tolerance of {tolerance:g} is below {LEAST_TOLERANCE:g}, where float64 rounds"
    if log_weights is not None and log_range(log_weights) > WIDEST:
        return f"the smallest weight is e^-{log_range(log_weights):.0f} of the largest"
    return None


def _one(p: Tensor, y: Tensor, logs: Tensor | None, tolerance: float) -> Tensor:
    weights = torch.ones_like(y[:, 0]) if logs is None else (logs - logs.max()).exp()
    light = logs is not None and log_range(logs) > WIDEST_SINGLE
    order, asked = _order(y), _order(torch.nn.functional.normalize(p, dim=-1))
    y, weights = y[order], weights[order]
    # Logits are in units of log 2, which is what the hardware's exponential wants.
    queries = p[asked] / math.log(2)
    largest = float(torch.linalg.vector_norm(queries, dim=1).max())
    for each in SOURCES:
        whole = len(y) // each * each
        blocks = y[:whole].reshape(-1, each, y.shape[1])
        reach = torch.linalg.vector_norm(blocks - blocks.mean(1, keepdim=True), dim=-1).amax(1).sort().values
        usual = float(reach[9 * len(reach) // 10]) if whole else 2.0
        single = not light and tolerance >= SINGLE and rounding(largest, usual) < tolerance
        if single:
            break
    # Whole blocks, and what is left of the last one, filled up with weight zero: each part has shifts of its own.
    parts = [_sums(queries, y[:whole], weights[:whole] if logs is not None else None, each, single, tolerance)]
    if whole < len(y):
        rest = y[-1:].expand(each, -1).clone()
        rest[: len(y) - whole] = y[whole:]
        shares = weights.new_zeros(each)
        shares[: len(y) - whole] = weights[whole:]
        parts.append(_sums(queries, rest, shares, each, single, tolerance))
    shift = torch.stack([part[-1] for part in parts]).amax(0)
    total = torch.stack([part[:-1] * torch.exp2(part[-1] - shift) for part in parts]).sum(0)
    mean = torch.empty_like(p)
    mean[asked] = (total[1:] / total[:1]).T
    return mean


def _sums(
    queries: Tensor, y: Tensor, weights: Tensor | None, each: int, single: bool, tolerance: float
) -> Float[Tensor, "d+2 q"]:
    """Σ w 2^{⟨p,y⟩ − shift}, the same times y, and the shift; for sources in whole blocks."""
    q, d = queries.shape
    out = torch.zeros((d + 2, q), dtype=torch.float64, device=y.device)
    if not len(y):
        out[-1] = -torch.inf
        return out
    blocks = y.reshape(-1, each, d)
    centre = blocks.mean(1)
    near = blocks - centre[:, None]
    reach = torch.linalg.vector_norm(near, dim=-1).amax(1)
    size = torch.linalg.vector_norm(queries, dim=1)
    kind = torch.float32 if single else torch.float64
    smallest = 1.0 if weights is None else float(weights[weights > 0].min())
    m, k, warps = TILE
    _kernel(d)[(triton.cdiv(q, m),)](
        queries.T.contiguous(),
        size,
        near.reshape(-1, d).T.to(kind).contiguous(),
        near if weights is None else weights.to(kind),
        centre.T.contiguous(),
        reach,
        out,
        q,
        len(y),
        # All that is left out is below the tolerance even beside a source of the smallest weight and largest logit.
        math.log2(8 * len(y) / (tolerance * smallest)),
        D=d,
        KIND=tl.float32 if single else tl.float64,
        FAST=single,
        WEIGHTED=weights is not None,
        EXACT=float(size.max() * reach.max()) > SAFE,
        M=m,
        N=k,
        SOURCES=each,
        num_warps=warps,
    )
    return out


def rounding(kappa: float, reach: float) -> float:
    """About how wrong float32 is: rounded logits within a block, κ·reach at most, times how far sources are apart."""
    return 6e-8 * kappa * reach * (reach + 1 / math.sqrt(max(kappa, 1.0)))


def _order(y: Float[Tensor, "n d"]) -> Tensor:
    """Close points next to each other: by interleaved digits of their coordinates."""
    d = y.shape[1]
    bits = 60 // d if d > 3 else 20
    digits = ((y + 1) / 2 * (2**bits - 1)).clamp(0, 2**bits - 1).long()
    key = torch.zeros(len(y), dtype=torch.int64, device=y.device)
    for bit in range(bits - 1, -1, -1):
        for k in range(d):
            key = (key << 1) | ((digits[:, k] >> bit) & 1)
    return key.argsort()


@triton.jit
@no_type_check
def _power(e, FAST: tl.constexpr):
    """2^e; in float32 without the care that Triton takes of results below 1e-38."""
    if FAST:
        power = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [e], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        power = tl.exp2(e)
    return power


KERNEL = """\
def _mean_map(
    P, SIZE, Z, W, C, R, OUT, q, n, cut,
    D: tl.constexpr, KIND: tl.constexpr, FAST: tl.constexpr, WEIGHTED: tl.constexpr, EXACT: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, SOURCES: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    there = rows < q
    blocks = n // SOURCES
    size = tl.load(SIZE + rows, mask=there, other=0.0)
    p{k} = tl.load(P + {k} * q + rows, mask=there, other=0.0)
    f{k} = p{k}.to(KIND)[:, None]
    shift = tl.full((M,), -1.0e300, tl.float64)
    t = tl.zeros((M,), tl.float64)
    t{k} = t
    # First the centres, since a mean is no larger than the largest; then, where sources may have much larger logits
    # than centres, those; then sums.
    for turn in tl.static_range(3):
        for b in range(blocks):
            base = p0 * tl.load(C + b)
            base += p{k>0} * tl.load(C + {k>0} * blocks + b)
            if turn == 0:
                shift = tl.maximum(shift, base)
            elif turn == 2 or EXACT:
                least = -cut if turn == 2 else 0.0
                if tl.max(base + size * tl.load(R + b) - shift) > least:
                    from_shift = tl.maximum(base - shift, -1.0e30).to(KIND)[:, None]
                    z = tl.zeros((M, N), KIND)
                    z{k} = z
                    if turn == 1:
                        z = tl.full((M, N), -1.0e30, KIND)
                    for inner in range(0, SOURCES, N):
                        j = b * SOURCES + inner + tl.arange(0, N)
                        y{k} = tl.load(Z + {k} * n + j)[None, :]
                        e = from_shift
                        e += f{k} * y{k}
                        if turn == 1:
                            z = tl.maximum(z, e)
                        else:
                            e = _power(e, FAST)
                            if WEIGHTED:
                                e *= tl.load(W + j)[None, :]
                            z += e
                            z{k} += e * y{k}
                    if turn == 1:
                        shift = tl.maximum(shift, shift + tl.max(z, 1).to(tl.float64))
                    else:
                        s = tl.sum(z, 1).to(tl.float64)
                        t += s
                        t{k} += tl.sum(z{k}, 1).to(tl.float64) + s * tl.load(C + {k} * blocks + b)
    tl.store(OUT + rows, t, mask=there)
    tl.store(OUT + (1 + D) * q + rows, shift, mask=there)
    tl.store(OUT + (1 + {k}) * q + rows, t{k}, mask=there)
"""
"""The kernel's source: a line with {k} stands once for every coordinate, one with {k>0} for all but the first.

Triton before 3.3 has no tuples, and its loops cannot name variables.
"""


@cache
def _kernel(d: int) -> Any:
    """The kernel for d dimensions, compiled from ``KERNEL``; Triton reads its source from linecache."""
    text = "".join(
        line.replace("{k>0}", str(k)).replace("{k}", str(k))
        for line in KERNEL.splitlines(keepends=True)
        for k in (range(1, d) if "{k>0}" in line else range(d) if "{k}" in line else range(1))
    )
    name, names = f"<mean map in {d} dimensions>", dict(globals())
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), names)
    return triton.jit(names["_mean_map"])
