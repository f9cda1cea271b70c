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

from frostline.errors import BadParameter

DIMENSIONS = range(2, 9)
LEAST_TOLERANCE = 1e-12
SINGLE = 1e-7
"""The smallest tolerance that is met in float32."""
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
    refuse(p, tolerance)
    d, n = p.shape[-1], y.shape[-2]
    logs = None if log_weights is None else log_weights.expand(y.shape[:-1]).reshape(-1, n)
    members = zip(p.reshape(-1, p.shape[-2], d), y.reshape(-1, n, d), strict=True)
    found = [
        _one(queries.double(), sources.double(), None if logs is None else logs[number].double(), tolerance)
        for number, (queries, sources) in enumerate(members)
    ]
    return torch.stack(found).reshape(p.shape).to(y.dtype)


def refuse(p: Float[Tensor, "*batch q d"], tolerance: float) -> None:
    """Say what this engine cannot do."""
    if not p.is_cuda:
        raise BadParameter('the cuda engine needs tokens on a GPU; move them there, or use engine="auto".')
    if p.shape[-1] not in DIMENSIONS:
        raise BadParameter(f'the cuda engine is for 2 to 8 dimensions, not {p.shape[-1]}; use engine="dense".')
    if tolerance < LEAST_TOLERANCE:
        raise BadParameter(
            f"the cuda engine promises errors down to {LEAST_TOLERANCE:g}, not {tolerance:g}: float64 rounds there. "
            'Use engine="dense" for all the digits there are.'
        )


def _one(p: Tensor, y: Tensor, logs: Tensor | None, tolerance: float) -> Tensor:
    q, d = p.shape
    weights = torch.ones(len(y), dtype=torch.float64, device=y.device) if logs is None else (logs - logs.max()).exp()
    y, weights = y[weights > 0], weights[weights > 0]
    order, asked = _order(y), _order(torch.nn.functional.normalize(p, dim=-1))
    # Logits are in units of log 2, which is what the hardware's exponential wants.
    queries = p[asked] / math.log(2)
    size = torch.linalg.vector_norm(queries, dim=1)
    largest = float(size.max())
    for each in SOURCES:
        rows = -(-len(y) // each) * each
        # The last block is filled with copies of the last source; the few that are summed are taken off again.
        places = order[torch.arange(rows, device=y.device).clamp(max=len(y) - 1)]
        blocks = y[places].reshape(-1, each, d)
        centre = blocks.mean(1)
        near = blocks - centre[:, None]
        reach = torch.linalg.vector_norm(near, dim=-1).amax(1)
        single = tolerance >= SINGLE and rounding(largest, float(reach.sort().values[9 * len(reach) // 10])) < tolerance
        if single:
            break
    kind = torch.float32 if single else torch.float64
    out = torch.empty((d + 1, q), dtype=torch.float64, device=p.device)
    m, k, warps = TILE
    _mean_map[(triton.cdiv(q, m),)](
        queries.T.contiguous(),
        size.contiguous(),
        near.reshape(-1, d).T.to(kind).contiguous(),
        weights[places].to(kind),
        centre.T.contiguous(),
        reach,
        out,
        q,
        len(y),
        rows,
        # All that is left out is below the tolerance even beside a source of the smallest weight and largest logit.
        math.log2(4 * len(y) / (tolerance * float(weights.min()))),
        D=d,
        KIND=tl.float32 if single else tl.float64,
        FAST=single,
        WEIGHTED=logs is not None,
        EXACT=largest * float(reach.max()) > SAFE,
        M=m,
        N=k,
        SOURCES=each,
        num_warps=warps,
    )
    found = torch.empty((q, d), dtype=torch.float64, device=p.device)
    found[asked] = (out[1:] / out[:1]).T
    return found


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
    P, SIZE, Z, W, C, R, OUT, q, n, stride, cut,
    D: tl.constexpr, KIND: tl.constexpr, FAST: tl.constexpr, WEIGHTED: tl.constexpr, EXACT: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, SOURCES: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    there = rows < q
    blocks = stride // SOURCES
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
                    for inner in range(0, min(SOURCES, n - b * SOURCES), N):
                        j = b * SOURCES + inner + tl.arange(0, N)
                        y0 = tl.load(Z + j)[None, :]
                        y1 = tl.load(Z + stride + j)[None, :]
                        y2 = y0
                        y3 = y0
                        y4 = y0
                        y5 = y0
                        y6 = y0
                        y7 = y0
                        e = from_shift + f0 * y0 + f1 * y1
                        if D > 2:
                            y2 = tl.load(Z + 2 * stride + j)[None, :]
                            e += f2 * y2
                        if D > 3:
                            y3 = tl.load(Z + 3 * stride + j)[None, :]
                            e += f3 * y3
                        if D > 4:
                            y4 = tl.load(Z + 4 * stride + j)[None, :]
                            e += f4 * y4
                        if D > 5:
                            y5 = tl.load(Z + 5 * stride + j)[None, :]
                            e += f5 * y5
                        if D > 6:
                            y6 = tl.load(Z + 6 * stride + j)[None, :]
                            e += f6 * y6
                        if D > 7:
                            y7 = tl.load(Z + 7 * stride + j)[None, :]
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
                        s = tl.sum(z, 1)
                        s0 = tl.sum(z0, 1)
                        s1 = tl.sum(z1, 1)
                        s2 = tl.sum(z2, 1)
                        s3 = tl.sum(z3, 1)
                        s4 = tl.sum(z4, 1)
                        s5 = tl.sum(z5, 1)
                        s6 = tl.sum(z6, 1)
                        s7 = tl.sum(z7, 1)
                        if (b == blocks - 1) & (n % N != 0):
                            last = n - 1 + tl.zeros((N,), tl.int32)
                            y0 = tl.load(Z + last)[None, :]
                            y1 = tl.load(Z + stride + last)[None, :]
                            y2 = y0
                            y3 = y0
                            y4 = y0
                            y5 = y0
                            y6 = y0
                            y7 = y0
                            if D > 2:
                                y2 = tl.load(Z + 2 * stride + last)[None, :]
                            if D > 3:
                                y3 = tl.load(Z + 3 * stride + last)[None, :]
                            if D > 4:
                                y4 = tl.load(Z + 4 * stride + last)[None, :]
                            if D > 5:
                                y5 = tl.load(Z + 5 * stride + last)[None, :]
                            if D > 6:
                                y6 = tl.load(Z + 6 * stride + last)[None, :]
                            if D > 7:
                                y7 = tl.load(Z + 7 * stride + last)[None, :]
                            spare = tl.where(tl.arange(0, N) < N - n % N, 1.0, 0.0).to(KIND)[None, :]
                            e = from_shift + f0 * y0 + f1 * y1
                            if D > 2:
                                e += f2 * y2
                            if D > 3:
                                e += f3 * y3
                            if D > 4:
                                e += f4 * y4
                            if D > 5:
                                e += f5 * y5
                            if D > 6:
                                e += f6 * y6
                            if D > 7:
                                e += f7 * y7
                            e = _power(e, FAST) * spare
                            if WEIGHTED:
                                e *= tl.load(W + last)[None, :]
                            s -= tl.sum(e, 1)
                            s0 -= tl.sum(e * y0, 1)
                            s1 -= tl.sum(e * y1, 1)
                            if D > 2:
                                s2 -= tl.sum(e * y2, 1)
                            if D > 3:
                                s3 -= tl.sum(e * y3, 1)
                            if D > 4:
                                s4 -= tl.sum(e * y4, 1)
                            if D > 5:
                                s5 -= tl.sum(e * y5, 1)
                            if D > 6:
                                s6 -= tl.sum(e * y6, 1)
                            if D > 7:
                                s7 -= tl.sum(e * y7, 1)
                        s = s.to(tl.float64)
                        t += s
                        t0 += s0.to(tl.float64) + s * tl.load(C + b)
                        t1 += s1.to(tl.float64) + s * tl.load(C + blocks + b)
                        if D > 2:
                            t2 += s2.to(tl.float64) + s * tl.load(C + 2 * blocks + b)
                        if D > 3:
                            t3 += s3.to(tl.float64) + s * tl.load(C + 3 * blocks + b)
                        if D > 4:
                            t4 += s4.to(tl.float64) + s * tl.load(C + 4 * blocks + b)
                        if D > 5:
                            t5 += s5.to(tl.float64) + s * tl.load(C + 5 * blocks + b)
                        if D > 6:
                            t6 += s6.to(tl.float64) + s * tl.load(C + 6 * blocks + b)
                        if D > 7:
                            t7 += s7.to(tl.float64) + s * tl.load(C + 7 * blocks + b)
    tl.store(OUT + rows, t, mask=there)
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
