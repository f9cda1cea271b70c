"""Forward hooks that hand over the hidden states of a model in use; they change nothing and raise nothing.

Hooks of one forward pass share what they collect through thread-local storage: many threads may use one model.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from frostline.encoders.load import Encoder
from frostline.errors import BadModel
from frostline.log import LOG
from frostline.monitoring.reference_cloud import PARTS

_unwatched = threading.local()


@dataclass(frozen=True, eq=False)
class HiddenStates:
    """First station of a text: the hidden states of one forward pass, or of several small passes put together.

    states  (b, n, d) at every cloud asked for, in the order of the clouds; then, for every layer whose inside is asked
            for, the results of its query, key, value and output modules
    mask    the attention mask (b, n), zero for padding; None where there is no padding
    ids     token ids (b, n); None where they are not known or not needed
    passes  number of forward passes
    rows    number of texts in the last of these passes; None: all texts
    """

    states: list[Tensor]
    mask: Tensor | None
    ids: Tensor | None
    passes: int = 1
    rows: int | None = None

    @property
    def present(self) -> Tensor:
        """True where a state belongs to a token, False where it belongs to padding."""
        if self.mask is None:
            return torch.ones(self.states[0].shape[:2], dtype=torch.bool, device=self.states[0].device)
        return self.mask != 0


class Tap:
    """Hooks on those layers of a model that lead to the clouds asked for (0 is before the first layer).

    ``inside``: numbers of the layers whose query, key, value and output modules are read too (0 is the first layer).
    ``receive`` is called with the hidden states of every pass. Errors inside the hooks are counted, logged once, and
    never reach the model's caller; with ``strict`` they do, which is right when a baseline is made. ``entry`` is the
    module whose call is one pass, where that is not the model itself; it may get its inputs in a dictionary.
    """

    def __init__(
        self,
        model: nn.Module,
        encoder: Encoder,
        clouds: Sequence[int],
        receive: Callable[[HiddenStates], None],
        *,
        inside: Sequence[int] = (),
        strict: bool = False,
        entry: nn.Module | None = None,
    ):
        self.failures = 0
        self._closed = False
        self._strict = strict
        self._receive = receive
        self._clouds = tuple(clouds)
        self._wanted = (*self._clouds, *((layer, part) for layer in inside for part in PARTS))
        self._pass = threading.local()
        self._lock = threading.Lock()
        base = getattr(model, "base_model", model)
        paths = [encoder.family.layer.format(number).rstrip(".") for number in range(encoder.layers)]
        try:
            layers = [base.get_submodule(path) for path in paths]
        except AttributeError:
            raise BadModel(
                f"the model has no module {paths[0]}; give the transformers model that the baseline is of."
            ) from None
        entry = base if entry is None else entry
        self._handles = [entry.register_forward_pre_hook(self._begin, with_kwargs=True)]
        if 0 in self._clouds:
            self._handles.append(layers[0].register_forward_pre_hook(self._enter, with_kwargs=True))
        if len(set(layers)) < len(layers):  # one module for every layer, as in ALBERT
            self._handles.append(layers[0].register_forward_hook(self._leave_shared))
        else:
            self._handles += [
                layers[cloud - 1].register_forward_hook(partial(self._leave, cloud)) for cloud in self._clouds if cloud
            ]
        for part in PARTS if inside else ():
            name = getattr(encoder.family, part)
            modules = [base.get_submodule(encoder.path(name, layer)) for layer in range(encoder.layers)]
            if encoder.family.shared:
                self._handles.append(modules[0].register_forward_hook(partial(self._leave_part, None, part)))
            else:
                self._handles += [
                    modules[layer].register_forward_hook(partial(self._leave_part, layer, part)) for layer in inside
                ]
        self._handles.append(entry.register_forward_hook(self._end))
        _forget_compiled()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of a watched model is not watched: its hooks do nothing.
        return (_closed, ())

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._closed = True
        _forget_compiled()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _begin(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self._closed or (not self._strict and getattr(_unwatched, "passes", False)):
            self._pass.states = None
            return
        self._pass.states = {}
        self._pass.count = 0
        if inputs and isinstance(inputs[0], Mapping):
            named = dict(inputs[0])
        self._pass.mask = named.get("attention_mask", inputs[1] if len(inputs) > 1 else None)
        ids = named.get("input_ids", inputs[0] if inputs else None)
        self._pass.ids = ids if isinstance(ids, Tensor) and ids.ndim == 2 else None

    def _enter(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        states = getattr(self._pass, "states", None)
        if states is not None:
            states.setdefault(0, inputs[0] if inputs else named.get("hidden_states"))

    def _leave(self, cloud: int, module: nn.Module, inputs: tuple[Any, ...], result: Any) -> None:
        states = getattr(self._pass, "states", None)
        if states is not None:
            states[cloud] = result[0] if isinstance(result, tuple) else result

    def _leave_shared(self, module: nn.Module, inputs: tuple[Any, ...], result: Any) -> None:
        if getattr(self._pass, "states", None) is not None:
            self._pass.count += 1
            if self._pass.count in self._clouds:
                self._leave(self._pass.count, module, inputs, result)

    def _leave_part(self, layer: int | None, part: str, module: nn.Module, inputs: Any, result: Any) -> None:
        states = getattr(self._pass, "states", None)
        if states is not None:
            # One module for every layer: layers that have ended are counted.
            place = (self._pass.count if layer is None else layer, part)
            if place in self._wanted:
                states[place] = result

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _end(self, module: nn.Module, inputs: tuple[Any, ...], result: Any) -> None:
        # None where the hooks were put on while this pass was under way: the pass is skipped, which is no failure.
        states = getattr(self._pass, "states", None)
        if states is None:
            return
        mask, ids = self._pass.mask, self._pass.ids
        self._pass.states = self._pass.mask = self._pass.ids = None
        # No context managers here: between passes every line of Python is cold and costs ten times more.
        try:
            if len(states) != len(self._wanted):
                raise RuntimeError(f"{len(states)} of {len(self._wanted)} states were seen")
            # Nothing that is computed from detached states keeps gradients.
            detached = [states[place].detach() for place in self._wanted]
            shape, device = detached[0].shape[:2], detached[0].device.type
            if mask is not None and mask.shape != shape:
                raise RuntimeError(f"an attention mask of shape {tuple(mask.shape)} for tokens {tuple(shape)}")
            if torch.is_autocast_enabled(device):
                # The model may run in lower precision; what looks at it does not.
                with torch.autocast(device, enabled=False):
                    self._receive(HiddenStates(detached, mask, ids))
            else:
                self._receive(HiddenStates(detached, mask, ids))
        except Exception as error:  # fail-open: an error of the monitor must not become an error of the model
            if self._strict:
                raise
            self.failed(error)

    def failed(self, error: Exception, passes: int = 1) -> None:
        """Count passes that could not be scored, and log the first error."""
        with self._lock:
            first = not self.failures
            self.failures += passes
        if first:
            LOG.warning("watching failed and goes on: %s: %s", type(error).__name__, error)


def _closed() -> Tap:
    tap = object.__new__(Tap)
    tap._closed, tap._pass = True, threading.local()
    return tap


@contextmanager
def unwatched_passes() -> Iterator[None]:
    """Passes that frostline itself runs are no traffic: inside this context no watch sees them."""
    before = getattr(_unwatched, "passes", False)
    _unwatched.passes = True
    try:
        yield
    finally:
        _unwatched.passes = before


def _forget_compiled() -> None:
    """Have torch compile models anew: compiled code ignores hooks that were put on or taken off later.

    Models of one class share compiled code, so everything is reset as soon as anything was compiled.
    """
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return
    dynamo.config.skip_nnmodule_hook_guards = False
    if dynamo.utils.counters["stats"]:
        torch.compiler.reset()
        dynamo.utils.counters.clear()
