"""Passes gathered are the passes, in their order."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from frostline.monitoring.hooks import HiddenStates
from frostline.monitoring.pass_buffer import ENOUGH, PassBuffer


def hidden_states(rows: int, length: int, number: int, *, masked: bool, named: bool, half: bool) -> HiddenStates:
    state = torch.arange(rows * length * 2, dtype=torch.float32).reshape(rows, length, 2) % 64 + number
    mask = (torch.arange(length) < length - 1).long().expand(rows, length) if masked else None
    ids = torch.full((rows, length), number) if named else None
    return HiddenStates([state.bfloat16() if half else state, -state], mask, ids)


passes = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from([2, 2, 2, 3, 7]), st.booleans(), st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(passes, st.integers(1, 20), st.booleans())
def test_nothing_is_lost_mixed_up_or_added(passes, hold, inference):
    """Whatever their lengths, masks and precision, inside inference mode or not: every text once, in order."""
    held = PassBuffer(hold)
    found, given_ = [], []
    for number, (rows, length, masked, named, half) in enumerate(passes):
        with torch.inference_mode(inference and number % 2 == 0):
            own = hidden_states(rows, length, number, masked=masked, named=named, half=half)
            given_.append((own.states[1].clone(), own.present))
            enough = held.add(own)
            for state in own.states if enough is None else ():
                state.zero_()  # the caller may
        if enough is not None:
            assert enough.rows == rows and len(enough.present) >= hold
            found.append(enough)
    rest = held.empty()
    assert held.empty() is None
    found += [] if rest is None else [rest]
    assert sum(group.passes for group in found) == len(passes)
    texts = [(state[row], here[row]) for state, here in given_ for row in range(len(here))]
    seen = [(group.states[1][row], group.present[row]) for group in found for row in range(len(group.present))]
    assert len(texts) == len(seen)
    for (state, here), (own, present) in zip(texts, seen, strict=True):
        assert own.dtype == torch.float32 and present.dtype == torch.bool
        assert torch.equal(own[: len(state)], state) and torch.equal(present[: len(here)], here)
        assert not present[len(here) :].any()
    for group in found:
        assert group.ids is None or group.ids.shape == group.present.shape


def test_equal_passes_share_one_block():
    """Each state is copied once: what is gathered is a view of what was allocated for it."""
    held = PassBuffer()
    texts, _ = ENOUGH["cpu"]
    for _ in range(2):
        for number in range(texts):
            enough = held.add(hidden_states(1, 4, number, masked=True, named=False, half=False))
        assert enough is not None and np.array_equal(enough.states[0][:, 0, 0], np.arange(texts))
    assert enough.states[0]._base is not None and len(enough.states[0]._base) == texts
