"""The cuda engine against every pair in float64; needs a GPU and Triton."""

import pytest
import torch

import frostline as fl
from frostline.errors import BadParameter

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def exact(p, y, w):
    logits = p @ y.T
    shares = (logits - logits.amax(1, keepdim=True)).exp() * w
    return shares @ y / shares.sum(1, keepdim=True)


@pytest.mark.parametrize("d", [2, 3, 5, 8])
@pytest.mark.parametrize("n", [5, 1000, 20_001])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_promise_is_kept(d, n, weighted):
    from frostline.dynamics.mean_map.cuda import cuda

    x = torch.from_numpy(fl.sample.uniform(n, d, seed=d)).cuda()
    w = torch.rand(n, dtype=torch.float64, device="cuda") ** 8 + 1e-12 if weighted else torch.ones(n).cuda().double()
    some = torch.arange(0, n, max(1, n // 500)).cuda()
    for beta in (1.0, 100.0, 1e4, 1e6):
        p = beta * x @ torch.diag(torch.linspace(1, 0.2, d, dtype=torch.float64)).cuda()
        for tolerance in (1e-6, 1e-10):
            m = cuda(p, x, w.log() if weighted else None, tolerance)
            gap = torch.linalg.vector_norm(m[some] - exact(p[some], x, w), dim=1).max()
            assert float(gap) <= tolerance + 40 * beta * 2e-16


def test_what_it_cannot_do():
    from frostline.dynamics.mean_map.cuda import cuda

    x = torch.eye(9, dtype=torch.float64)
    for given, words in ((x, "on a GPU"), (x.cuda(), "d = 9 is not"), (x[:3, :3].cuda(), "below 1e-12")):
        with pytest.raises(BadParameter, match=words):
            cuda(given, given, None, 1e-15)
    with pytest.raises(BadParameter, match=r"e\^-700"):
        cuda(x[:3, :3].cuda(), x[:3, :3].cuda(), torch.tensor([0.0, -700.0, -torch.inf]).cuda(), 1e-6)


def test_the_lightest_source_may_be_all_that_counts():
    x = torch.eye(3, dtype=torch.float64, device="cuda").repeat(600, 1)
    weights = torch.ones(1800, dtype=torch.float64)
    weights[::3] = 1e-200
    head = fl.Attention.from_matrices(torch.eye(3).tolist(), torch.eye(3).tolist(), beta=1e3)
    m = fl.mean_map(head, x, weights=weights / weights.sum(), engine="cuda", tolerance=1e-6)
    assert float((m - x).abs().max()) < 1e-6


def test_a_full_gpu_is_said_to_be_full():
    x = torch.from_numpy(fl.sample.uniform(200_000, 3, seed=0)).cuda()
    head = fl.Attention.from_matrices(torch.eye(3).tolist(), torch.eye(3).tolist(), beta=100.0)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**25) / torch.cuda.mem_get_info()[1])
    try:
        with pytest.raises(BadParameter, match="not enough memory for a mean map of 200,000"):
            fl.mean_map(head, x)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert fl.mean_map(head, x).shape == (200_000, 3)
