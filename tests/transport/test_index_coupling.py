import numpy as np
import pytest

from frostline import sample
from frostline.errors import BadArray
from frostline.transport.index_coupling import index_coupling


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_plain_sum(rng, p, weighted):
    x, y = sample.uniform(7, 3, seed=rng), sample.uniform(7, 3, seed=rng)
    w = rng.dirichlet(np.ones(7)) if weighted else None
    plain = sum((1 / 7 if w is None else w[i]) * np.linalg.norm(x[i] - y[i]) ** p for i in range(7)) ** (1 / p)
    assert float(index_coupling(x, y, p=p, weights=w)) == pytest.approx(plain, rel=1e-14)


def test_frames_give_one_number_each(rng):
    x, y = sample.uniform(12, 3, seed=rng).reshape(3, 4, 3), sample.uniform(4, 3, seed=rng)
    assert np.allclose(index_coupling(x, y), [index_coupling(frame, y) for frame in x])


def test_clouds_of_different_sizes_get_a_sentence():
    with pytest.raises(BadArray, match="one by one"):
        index_coupling(np.eye(3), np.eye(3)[:2])
