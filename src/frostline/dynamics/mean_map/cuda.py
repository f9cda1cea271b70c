"""The mean map on a GPU (Triton) for 2 to 8 dimensions: float32 where that is enough, float64 where it is not.

Sources are sorted into blocks of close ones. A logit is ⟨p, c⟩ − shift, in float64, once for every query and block,
plus ⟨p, y − c⟩ in float32, where p is large but y − c small: what the difference form (THEORY eq. 4) is for, with fewer
operations. Sums within a block are relative to its centre, those over blocks in float64. Before, every query's largest
logit is found, its shift; blocks that cannot matter are left out.
"""

import math
from typing import no_type_check

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
    _mean_map[(triton.cdiv(q, m),)](
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


@triton.jit
@no_type_check
def _mean_map(
    P, SIZE, Z, W, C, R, OUT, q, n, cut,
    D: tl.constexpr, KIND: tl.constexpr, FAST: tl.constexpr, WEIGHTED: tl.constexpr, EXACT: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, SOURCES: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    there = rows < q
    blocks = n // SOURCES
    size = tl.load(SIZE + rows, mask=there, other=0.0)
    p0 = tl.load(P + rows, mask=there, other=0.0)
    p1 = tl.load(P + q + rows, mask=there, other=0.0)
    p2 = p0
    p3 = p0
    p4 = p0
    p5 = p0
    p6 = p0
    p7 = p0
    if D > 2:
        p2 = tl.load(P + 2 * q + rows, mask=there, other=0.0)
    if D > 3:
        p3 = tl.load(P + 3 * q + rows, mask=there, other=0.0)
    if D > 4:
        p4 = tl.load(P + 4 * q + rows, mask=there, other=0.0)
    if D > 5:
        p5 = tl.load(P + 5 * q + rows, mask=there, other=0.0)
    if D > 6:
        p6 = tl.load(P + 6 * q + rows, mask=there, other=0.0)
    if D > 7:
        p7 = tl.load(P + 7 * q + rows, mask=there, other=0.0)
    f0 = p0.to(KIND)[:, None]
    f1 = p1.to(KIND)[:, None]
    f2 = p2.to(KIND)[:, None]
    f3 = p3.to(KIND)[:, None]
    f4 = p4.to(KIND)[:, None]
    f5 = p5.to(KIND)[:, None]
    f6 = p6.to(KIND)[:, None]
    f7 = p7.to(KIND)[:, None]
    shift = tl.full((M,), -1.0e300, tl.float64)
    t = tl.zeros((M,), tl.float64)
    t0 = t
    t1 = t
    t2 = t
    t3 = t
    t4 = t
    t5 = t
    t6 = t
    t7 = t
    # First the centres, since a mean is no larger than the largest; then, where sources may have much larger logits
    # than centres, those; then sums.
    for turn in tl.static_range(3):
        for b in range(blocks):
            base = p0 * tl.load(C + b) + p1 * tl.load(C + blocks + b)
            if D > 2:
                base += p2 * tl.load(C + 2 * blocks + b)
            if D > 3:
                base += p3 * tl.load(C + 3 * blocks + b)
            if D > 4:
                base += p4 * tl.load(C + 4 * blocks + b)
            if D > 5:
                base += p5 * tl.load(C + 5 * blocks + b)
            if D > 6:
                base += p6 * tl.load(C + 6 * blocks + b)
            if D > 7:
                base += p7 * tl.load(C + 7 * blocks + b)
            if turn == 0:
                shift = tl.maximum(shift, base)
            elif turn == 2 or EXACT:
                least = -cut if turn == 2 else 0.0
                if tl.max(base + size * tl.load(R + b) - shift) > least:
                    from_shift = tl.maximum(base - shift, -1.0e30).to(KIND)[:, None]
                    z = tl.zeros((M, N), KIND)
                    if turn == 1:
                        z = tl.full((M, N), -1.0e30, KIND)
                    z0 = tl.zeros((M, N), KIND)
                    z1 = z0
                    z2 = z0
                    z3 = z0
                    z4 = z0
                    z5 = z0
                    z6 = z0
                    z7 = z0
                    for inner in range(0, SOURCES, N):
                        j = b * SOURCES + inner + tl.arange(0, N)
                        y0 = tl.load(Z + j)[None, :]
                        y1 = tl.load(Z + n + j)[None, :]
                        y2 = y0
                        y3 = y0
                        y4 = y0
                        y5 = y0
                        y6 = y0
                        y7 = y0
                        e = from_shift + f0 * y0 + f1 * y1
                        if D > 2:
                            y2 = tl.load(Z + 2 * n + j)[None, :]
                            e += f2 * y2
                        if D > 3:
                            y3 = tl.load(Z + 3 * n + j)[None, :]
                            e += f3 * y3
                        if D > 4:
                            y4 = tl.load(Z + 4 * n + j)[None, :]
                            e += f4 * y4
                        if D > 5:
                            y5 = tl.load(Z + 5 * n + j)[None, :]
                            e += f5 * y5
                        if D > 6:
                            y6 = tl.load(Z + 6 * n + j)[None, :]
                            e += f6 * y6
                        if D > 7:
                            y7 = tl.load(Z + 7 * n + j)[None, :]
                            e += f7 * y7
                        if turn == 1:
                            z = tl.maximum(z, e)
                        else:
                            e = _power(e, FAST)
                            if WEIGHTED:
                                e *= tl.load(W + j)[None, :]
                            z += e
                            z0 += e * y0
                            z1 += e * y1
                            if D > 2:
                                z2 += e * y2
                            if D > 3:
                                z3 += e * y3
                            if D > 4:
                                z4 += e * y4
                            if D > 5:
                                z5 += e * y5
                            if D > 6:
                                z6 += e * y6
                            if D > 7:
                                z7 += e * y7
                    if turn == 1:
                        shift = tl.maximum(shift, shift + tl.max(z, 1).to(tl.float64))
                    else:
                        s = tl.sum(z, 1).to(tl.float64)
                        t += s
                        t0 += tl.sum(z0, 1).to(tl.float64) + s * tl.load(C + b)
                        t1 += tl.sum(z1, 1).to(tl.float64) + s * tl.load(C + blocks + b)
                        if D > 2:
                            t2 += tl.sum(z2, 1).to(tl.float64) + s * tl.load(C + 2 * blocks + b)
                        if D > 3:
                            t3 += tl.sum(z3, 1).to(tl.float64) + s * tl.load(C + 3 * blocks + b)
                        if D > 4:
                            t4 += tl.sum(z4, 1).to(tl.float64) + s * tl.load(C + 4 * blocks + b)
                        if D > 5:
                            t5 += tl.sum(z5, 1).to(tl.float64) + s * tl.load(C + 5 * blocks + b)
                        if D > 6:
                            t6 += tl.sum(z6, 1).to(tl.float64) + s * tl.load(C + 6 * blocks + b)
                        if D > 7:
                            t7 += tl.sum(z7, 1).to(tl.float64) + s * tl.load(C + 7 * blocks + b)
    tl.store(OUT + rows, t, mask=there)
    tl.store(OUT + (D + 1) * q + rows, shift, mask=there)
    tl.store(OUT + q + rows, t0, mask=there)
    tl.store(OUT + 2 * q + rows, t1, mask=there)
    if D > 2:
        tl.store(OUT + 3 * q + rows, t2, mask=there)
    if D > 3:
        tl.store(OUT + 4 * q + rows, t3, mask=there)
    if D > 4:
        tl.store(OUT + 5 * q + rows, t4, mask=there)
    if D > 5:
        tl.store(OUT + 6 * q + rows, t5, mask=there)
    if D > 6:
        tl.store(OUT + 7 * q + rows, t6, mask=there)
    if D > 7:
        tl.store(OUT + 8 * q + rows, t7, mask=there)
