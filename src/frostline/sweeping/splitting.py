"""One large problem on many processes: a mean map with its queries split, an audit with its texts split."""

import copy
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from frostline.arrays import Array, as_tensor
from frostline.attention import Attention
from frostline.auditing.audit import Audit, audit_by
from frostline.auditing.clouds import Chosen, Clouds, Measurements, chosen_of, joined, measure_part
from frostline.dynamics.mean_map import mean_map as mean_map_here
from frostline.encoders.fold import FoldedLayer, Norm, folded, norm_before
from frostline.encoders.forward import Batch, batches
from frostline.encoders.live_model import Model, open_model, plain_copy
from frostline.encoders.load import Encoder, load
from frostline.encoders.tokenization import Tokenized
from frostline.errors import BadCluster, BadParameter
from frostline.sweeping.kinds.base import code_version, content
from frostline.sweeping.worker import check_code

if TYPE_CHECKING:
    from distributed import Client

PIECES = 4
"""Pieces for each thread of the cluster: all wait for the last piece, so it should be small."""


def mean_map(
    head: Attention, x: Array, *, client: "Client", sources: Array | None = None, engine: str = "dense", **options: Any
) -> Array:
    """m_β[ρ](x) as ``frostline.mean_map``, the queries split over the workers of ``client``; every worker gets all
    sources.

    ``engine`` "dense" gives what one process gives, to rounding; "tree" groups the queries of a piece among themselves
    and agrees to its tolerance.
    """
    tensor, kind = as_tensor(x, "x")
    queries = tensor.cpu()
    if queries.ndim != 2:
        raise BadParameter(f"x has shape {tuple(queries.shape)}; queries to be split are (q, d).")
    sources = queries if sources is None else as_tensor(sources, "sources")[0]
    count = min(len(queries), PIECES * _threads(client))
    everywhere = _everywhere(client, _Problem(head, sources.cpu().numpy(), options))
    pieces = [piece.numpy() for piece in torch.tensor_split(queries, count)]
    code = code_version()
    futures = [client.submit(_piece, code, everywhere, piece, engine, pure=False) for piece in pieces]
    with _sentences():
        means = client.gather(futures)
    return kind.restore(torch.from_numpy(np.concatenate(means)))


@dataclass(frozen=True, eq=False)
class _Problem:
    head: Attention
    sources: np.ndarray
    options: dict[str, Any]


def _piece(code: str, problem: _Problem, queries: np.ndarray, engine: str) -> np.ndarray:
    check_code(code)
    return np.asarray(mean_map_here(problem.head, queries, sources=problem.sources, engine=engine, **problem.options))


def _everywhere(client: "Client", thing: object) -> Any:
    """Send a thing to every worker, under a name of its own: by hash two things might be taken for one another."""
    (future,) = client.scatter([thing], broadcast=True, hash=False)
    return future


def audit(model: "str | Path | nn.Module", texts: Sequence[str], *, client: "Client", **options: Any) -> Audit:
    """``frostline.audit`` over texts that are split over the workers of ``client``, batch by batch.

    A folder must be there on every worker; a live model travels. What is measured is the same to the bit where workers
    use as many threads as this process.
    """
    return audit_by(_measuring(client), model, texts, **options)


def _measuring(client: "Client") -> Callable[..., Clouds]:
    def measure(
        encoder: Encoder,
        layers: Sequence[FoldedLayer],
        last: Norm,
        model: Model,
        tokenized: Tokenized,
        *,
        reference: Collection[int] = (),
        tick: Callable[[int, int], None] = lambda done, of: None,
    ) -> Clouds:
        from distributed import as_completed

        # Open files cannot be sent: a worker opens the folder itself. A live model, which has no folder, is sent.
        source = _everywhere(client, _Live.of(model)) if encoder.folder is None else _Folder.of(encoder.folder)
        chosen = chosen_of(tokenized, reference=reference)
        every_batch, code = list(batches(tokenized)), code_version()
        _threads(client)
        futures = [client.submit(_part, code, source, batch, chosen, pure=False) for batch in every_batch]
        sizes = {future.key: len(batch.numbers) for future, batch in zip(futures, every_batch, strict=True)}
        done, parts = 0, []
        with _sentences():
            for future, part in as_completed(futures, loop=client.loop, with_results=True):
                parts.append(part)
                done += sizes[future.key]
                tick(done, chosen.texts)
        return joined(parts, encoder, layers, chosen)

    return measure


@dataclass(frozen=True)
class _Folder:
    """A model that workers read themselves, and the digest of its files, which must be the same there."""

    path: Path
    content: bytes

    @classmethod
    def of(cls, folder: Path) -> "_Folder":
        return cls(folder.resolve(), content(folder.resolve()))

    def load(self) -> Encoder:
        if not self.path.is_dir() or content(self.path) != self.content:
            raise BadCluster(
                f"{self.path} on {socket.gethostname()} is not the model that the client has there; workers need the "
                "same files at the same paths."
            )
        return load(self.path)


@dataclass(frozen=True, eq=False)
class _Live:
    """A live model as it is sent: once it has run, hooks of transformers prevent that the model itself is pickled."""

    kind: type
    config: Any
    state: dict[str, torch.Tensor]

    @classmethod
    def of(cls, model: Model) -> "_Live":
        return cls(type(model), copy.deepcopy(model.config), model.state_dict())

    def open(self) -> nn.Module:
        model: nn.Module = self.kind(self.config)
        model.load_state_dict(self.state)
        return model.eval().requires_grad_(False)


def _part(code: str, source: "_Folder | _Live", batch: Batch, chosen: Chosen) -> Measurements:
    check_code(code)
    return measure_part(*_taken_apart(source), [batch], chosen)


@lru_cache(2)
def _taken_apart(source: "_Folder | _Live") -> tuple[Encoder, list[FoldedLayer], Norm, Model]:
    """The parts of a model, made once for all its batches on a worker."""
    if isinstance(source, _Folder):
        encoder = source.load()
        model = open_model(encoder)
    else:
        live = source.open()
        encoder, model = load(live), plain_copy(live)
    layers = [folded(encoder, number) for number in range(encoder.layers)]
    return encoder, layers, norm_before(encoder, encoder.layers), model


def _threads(client: "Client") -> int:
    threads = sum(client.nthreads().values())
    if not threads:
        raise BadParameter("the cluster has no workers; start some with: dask worker ADDRESS")
    return int(threads)


@contextmanager
def _sentences() -> Iterator[None]:
    """A BadCluster with a sentence where Dask raises that workers or the scheduler are gone for good."""
    from distributed import KilledWorker

    try:
        yield
    except KilledWorker as error:
        raise BadCluster(
            f"a piece of the work took {error.allowed_failures + 1} workers down with it; too little memory is the "
            "usual reason: give each worker more, or take fewer workers."
        ) from None
    except (OSError, CancelledError) as error:
        raise BadCluster(
            f"the cluster went away ({type(error).__name__}); start it and give the command again."
        ) from None
