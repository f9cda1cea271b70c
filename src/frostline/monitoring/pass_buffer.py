"""Small forward passes gathered and looked at together: starting an operation costs more than the operation itself."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from frostline.monitoring.hooks import Taking

HOLD = {"cpu": (128, 4096), "cuda": (512, 16_384)}
"""Texts, or tokens with padding, that are enough."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """Several passes as one, shorter texts padded; the last of the passes had ``rows`` texts."""

    states: list[Tensor]
    present: Tensor
    ids: Tensor | None
    passes: int
    rows: int


class Hold:
    """Copies of passes, since a caller may change what the model returned before it is looked at.

    Passes of one length go into one block, one after the other: each state is then copied once.
    """

    def __init__(self, texts: int | None = None):
        self._enough = texts
        self._last = (0, 0)
        self._clear()

    def _clear(self) -> None:
        self._blocks: list[_Block] = []
        self._texts = self._tokens = self._passes = 0

    def add(self, taken: Taking) -> Gathered | None:
        """None while there is too little; else everything, this pass included."""
        rows, length, _ = taken.states[0].shape
        texts, tokens = HOLD.get(taken.states[0].device.type, (1, 1))
        texts = self._enough or texts
        repeated = length == self._last[1]
        self._last = (rows, length)
        self._texts += rows
        self._tokens += rows * length
        self._passes += 1
        enough = self._texts >= texts or self._tokens >= tokens
        if not (self._blocks and self._blocks[-1].joined_by(taken)):
            if enough:
                # Looked at before the caller goes on: no copy is needed.
                block = _Block([state.float() for state in taken.states], taken.present, taken.ids, rows)
            else:
                # Room for more where lengths repeat themselves; where they vary it would lie empty.
                more = min(texts - self._texts, (tokens - self._tokens) // length) if repeated else 0
                block = _Block.for_(taken, rows + more)
            self._blocks.append(block)
        return self.all() if enough else None

    def all(self) -> Gathered | None:
        """What is held, if anything is; then nothing is."""
        if not self._blocks:
            return None
        blocks, passes = self._blocks, self._passes
        self._clear()
        ids = [block.ids[: block.used] for block in blocks if block.ids is not None]
        return Gathered(
            [
                _joined([own[: block.used] for own, block in zip(cloud, blocks, strict=True)])
                for cloud in zip(*(block.states for block in blocks), strict=True)
            ],
            _joined([block.present[: block.used] for block in blocks]),
            _joined(ids) if len(ids) == len(blocks) else None,
            passes,
            self._last[0],
        )


@dataclass(eq=False)
class _Block:
    """Texts of one length, of which the first ``used`` are there."""

    states: list[Tensor]
    present: Tensor
    ids: Tensor | None
    used: int

    @classmethod
    def for_(cls, taken: Taking, room: int) -> "_Block":
        """With room for so many texts, and these in it."""
        shape = (room, taken.states[0].shape[1])
        # Passes in and outside of inference mode share a block: it must not be a tensor of inference mode.
        with torch.inference_mode(False):
            block = cls(
                [state.new_empty(*shape, state.shape[2], dtype=torch.float32) for state in taken.states],
                taken.states[0].new_empty(shape, dtype=torch.bool),
                None if taken.ids is None else taken.ids.new_empty(shape),
                0,
            )
        block.joined_by(taken)
        return block

    def joined_by(self, taken: Taking) -> bool:
        """Copy a pass into the block; False, and nothing is done, if it is not like the others or does not fit."""
        rows, length, _ = taken.states[0].shape
        own = slice(self.used, self.used + rows)
        if (
            length != self.present.shape[1]
            or own.stop > len(self.present)
            or self.present.device != taken.states[0].device
            or (self.ids is None) != (taken.ids is None)
        ):
            return False
        for block, state in zip(self.states, taken.states, strict=True):
            block[own].copy_(state)
        if taken.mask is None:
            self.present[own].fill_(True)
        else:
            self.present[own].copy_(taken.mask)
        if self.ids is not None and taken.ids is not None:
            self.ids[own].copy_(taken.ids)
        self.used += rows
        return True


def _joined(parts: list[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    longest = max(part.shape[1] for part in parts)
    return torch.cat([pad(x, (0, 0) * (x.ndim - 2) + (0, longest - x.shape[1])) for x in parts])
