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


@pytest.mark.parametrize("d", [2, 3, 8])
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
    for given, words in ((x, "on a GPU"), (x.cuda(), "2 to 8 dimensions"), (x[:3, :3].cuda(), "down to 1e-12")):
        with pytest.raises(BadParameter, match=words):
            cuda(given, given, None, 1e-15)
