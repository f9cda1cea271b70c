"""A buffer of small forward passes that are scored together: starting an operation costs more than the operation."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from frostline.monitoring.hooks import HiddenStates

ENOUGH = {"cpu": (128, 4096), "cuda": (512, 16_384)}
"""Texts, or tokens with padding, at which a full buffer is scored, by the type of device."""


class PassBuffer:
    """Copies of passes, since a caller may change what the model returned before it is scored.

    Passes of one length go into one block, one after the other: each state is then copied once.
    """

    def __init__(self, texts: int | None = None):
        self._enough = texts
        self._last_shape = (0, 0)
        self._clear()

    def _clear(self) -> None:
        self._blocks: list[_Block] = []
        self._texts = self._tokens = self._passes = 0

    def add(self, hidden: HiddenStates) -> HiddenStates | None:
        """Take one pass; the whole contents when the buffer is full, else None."""
        rows, length, _ = hidden.states[0].shape
        texts, tokens = ENOUGH.get(hidden.states[0].device.type, (1, 1))
        texts = self._enough or texts
        repeated = length == self._last_shape[1]
        self._last_shape = (rows, length)
        self._texts += rows
        self._tokens += rows * length
        self._passes += 1
        full = self._texts >= texts or self._tokens >= tokens
        if not (self._blocks and self._blocks[-1].append(hidden)):
            if full:
                # Scored before the caller goes on: no copy is needed.
                block = _Block([state.float() for state in hidden.states], hidden.present, hidden.ids, rows)
            else:
                # Room for more where lengths repeat themselves; where they vary it would stay empty.
                more = min(texts - self._texts, (tokens - self._tokens) // length) if repeated else 0
                block = _Block.with_room(hidden, rows + more)
            self._blocks.append(block)
        return self.empty() if full else None

    def empty(self) -> HiddenStates | None:
        """Hand over the contents, None where there are none; the buffer is empty afterwards."""
        if not self._blocks:
            return None
        blocks, passes = self._blocks, self._passes
        self._clear()
        ids = [block.ids[: block.used] for block in blocks if block.ids is not None]
        return HiddenStates(
            [
                _joined([state[: block.used] for state, block in zip(cloud, blocks, strict=True)])
                for cloud in zip(*(block.states for block in blocks), strict=True)
            ],
            _joined([block.present[: block.used] for block in blocks]),
            _joined(ids) if len(ids) == len(blocks) else None,
            passes,
            self._last_shape[0],
        )


@dataclass(eq=False)
class _Block:
    """Texts of one length; the first ``used`` rows are filled."""

    states: list[Tensor]
    present: Tensor
    ids: Tensor | None
    used: int

    @classmethod
    def with_room(cls, hidden: HiddenStates, rows: int) -> "_Block":
        """A block with room for so many texts, the first of which are these."""
        shape = (rows, hidden.states[0].shape[1])
        # Passes in and outside of inference mode share a block: it must not be a tensor of inference mode.
        with torch.inference_mode(False):
            block = cls(
                [state.new_empty(*shape, state.shape[2], dtype=torch.float32) for state in hidden.states],
                hidden.states[0].new_empty(shape, dtype=torch.bool),
                None if hidden.ids is None else hidden.ids.new_empty(shape),
                0,
            )
        block.append(hidden)
        return block

    def append(self, hidden: HiddenStates) -> bool:
        """Copy a pass into the block; False, and nothing is done, if it is not like the others or does not fit."""
        rows, length, _ = hidden.states[0].shape
        free = slice(self.used, self.used + rows)
        if (
            length != self.present.shape[1]
            or free.stop > len(self.present)
            or self.present.device != hidden.states[0].device
            or (self.ids is None) != (hidden.ids is None)
        ):
            return False
        for block, state in zip(self.states, hidden.states, strict=True):
            block[free].copy_(state)
        if hidden.mask is None:
            self.present[free].fill_(True)
        else:
            self.present[free].copy_(hidden.mask)
        if self.ids is not None and hidden.ids is not None:
            self.ids[free].copy_(hidden.ids)
        self.used += rows
        return True


def _joined(parts: list[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    longest = max(part.shape[1] for part in parts)
    return torch.cat([pad(x, (0, 0) * (x.ndim - 2) + (0, longest - x.shape[1])) for x in parts])
