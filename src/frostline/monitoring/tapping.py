"""Hidden states of a model in use, by forward hooks: nothing is changed, nothing raises, nothing is kept.

Hooks of one forward pass share what they collect through the thread they run in: many threads may use one model.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from frostline.encoders.loading import Encoder
from frostline.errors import BadModel

LOG = logging.getLogger("frostline")
Taken = Callable[[list[Tensor], Tensor], None]
"""Called after a forward pass with the states before, between and after the layers (b, n, d), and which are tokens."""


class Tap:
    """Hooks on a model's layers. Errors inside are counted, logged once, and never reach the model's caller.

    ``strict``: they do, which is right when a baseline is made.
    """

    def __init__(self, model: nn.Module, encoder: Encoder, taken: Taken, *, strict: bool = False):
        self.failures = 0
        self._strict = strict
        self._taken = taken
        self._layers = encoder.layers
        self._pass = threading.local()
        self._lock = threading.Lock()
        base = getattr(model, "base_model", model)
        paths = [encoder.family.layer.format(number).rstrip(".") for number in range(encoder.layers)]
        try:
            layers = [base.get_submodule(path) for path in dict.fromkeys(paths)]
        except AttributeError:
            raise BadModel(
                f"the model has no module {paths[0]}; give the transformers model that the baseline is of."
            ) from None
        self._handles = [
            base.register_forward_pre_hook(self._begin, with_kwargs=True),
            *(layer.register_forward_pre_hook(self._enter, with_kwargs=True) for layer in layers),
            *(layer.register_forward_hook(self._leave) for layer in layers),
            base.register_forward_hook(self._end),
        ]

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def _begin(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._pass.states = []
        mask = named.get("attention_mask", given[1] if len(given) > 1 else None)
        self._pass.mask = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None

    def _enter(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        states = getattr(self._pass, "states", None)
        if states is not None and not states:
            states.append(given[0] if given else named.get("hidden_states"))

    def _leave(self, module: nn.Module, given: tuple[Any, ...], result: Any) -> None:
        states = getattr(self._pass, "states", None)
        if states is not None:
            states.append(result[0] if isinstance(result, tuple) else result)

    def _end(self, module: nn.Module, given: tuple[Any, ...], result: Any) -> None:
        # None when the hooks came while this pass was under way: it is not seen, and that is no failure.
        states = getattr(self._pass, "states", None)
        if states is None:
            return
        mask = self._pass.mask
        self._pass.states = None
        try:
            if len(states) != self._layers + 1:
                raise RuntimeError(f"{len(states)} states of a model with {self._layers} layers were seen")
            with torch.no_grad():
                shape = states[0].shape[:2]
                present = torch.ones(shape, dtype=torch.bool, device=states[0].device) if mask is None else mask.bool()
                self._taken([state.detach() for state in states], present)
        except Exception as error:  # fail-open: whatever goes wrong here is no reason for the model to fail
            if self._strict:
                raise
            with self._lock:
                self.failures += 1
                first = self.failures == 1
            if first:
                LOG.warning("watching failed and goes on: %s: %s", type(error).__name__, error)
