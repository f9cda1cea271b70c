"""Run directories: spec (TOML), arrays (safetensors), summary and provenance (JSON).

A run directory appears whole or not at all. While a run is on its way it lives in a sibling ``.NAME.partial`` with a
checkpoint and the frames so far; the finished directory is built inside that and moved into place by a rename. If a
crash falls between moving the old directory away and the new one in, the next command that looks puts the old one back.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import tomli_w
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from frostline import __version__
from frostline.attention import Attention, Layer, as_layers
from frostline.dynamics.simulation import Trajectory
from frostline.dynamics.status import Status
from frostline.dynamics.walking import Resume, Step
from frostline.errors import BadRun, FrostlineError
from frostline.files.atomic import sync_folder, write_atomically
from frostline.files.locks import try_lock
from frostline.files.plain_json import as_json
from frostline.runs import schema as specs
from frostline.runs.build import build_stepper

SPEC = "spec.toml"
"""The spec with its defaults written out."""
ARRAYS = "arrays.safetensors"
"""Tokens, times, weights, distances and heads."""
SUMMARY = "summary.json"
"""The end of the run, its phases and distances."""
PROVENANCE = "provenance.json"
"""Versions, duration, and the checksums of the other files."""
FORMAT = "frostline-run-1"
"""The version of the format."""

Arrays: TypeAlias = dict[str, Tensor]
DAMAGE = (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError)
"""Errors that the reading of a damaged checkpoint may raise."""


class Partial:
    """An unfinished run: its lock, its checkpoint, its frames. Use as a context manager."""

    def __init__(self, out: Path, identity: str, *, force: bool):
        self.out, self.force, self.published = out, force, False
        # A run is resumed only by the very same spec and code version.
        self.identity, self.key = identity, f"{identity} {__version__}"
        self.folder = out.parent / f".{out.name}.partial"
        self.frames: list[str] = []
        """Checksums of the frames kept so far."""
        if out.is_symlink():
            raise BadRun(f"{out} is a symbolic link; give the folder it leads to.")
        recover(out)
        _refuse_foreign(out, identity, force)
        (self.folder / "frames").mkdir(parents=True, exist_ok=True)
        self._lock = open(self.folder / "lock", "w")  # noqa: SIM115  held until close
        try:
            self._take_lock()
            self._claim()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> "Partial":
        return self

    def __exit__(self, *_: object) -> None:
        if not self.published and not self._checkpoint.exists():
            shutil.rmtree(self.folder, ignore_errors=True)  # nothing in it to go on from
        self._lock.close()

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    def _take_lock(self) -> None:
        if not try_lock(self._lock):
            raise BadRun(f"another process is writing {self.out}; wait for it, or choose another out.")

    def _claim(self) -> None:
        """Check whose unfinished run this is; that of another spec is refused, or discarded with ``force``."""
        owner = self._numbers().get("key", "")
        if owner and owner.split()[0] != self.identity and not self.force:
            raise BadRun(
                f"{self.folder} holds an unfinished run of another spec; finish that one, choose another out, "
                "or discard it with --force."
            )
        if owner != self.key:
            for stale in [*self.folder.glob("frames/*"), self._checkpoint]:
                stale.unlink(missing_ok=True)

    def _numbers(self) -> dict[str, str]:
        """The metadata of the checkpoint; empty when there is none or it is damaged."""
        try:
            return _metadata(self._checkpoint.read_bytes())
        except DAMAGE:
            return {}

    def keep_frame(self, number: int, tokens: Tensor) -> None:
        """Write the tokens of one kept time."""
        blob = save({"tokens": tokens.contiguous()})
        write_atomically(self._frame(number), blob)
        self.frames[number:] = [hashlib.sha256(blob).hexdigest()]

    def _frame(self, number: int) -> Path:
        return self.folder / "frames" / f"{number:06d}.safetensors"

    def checkpoint(self, step: Step, curve: Sequence[tuple[float, float]]) -> None:
        """Write everything needed to resume from here; after a crash this checkpoint or the one before is whole."""
        points = torch.tensor(list(curve), dtype=torch.float64).reshape(-1, 2)
        arrays = {"tokens": step.tokens.cpu().contiguous(), "curve": points}
        numbers = {
            "key": self.key,
            "steps": str(step.steps),
            "time": step.time.hex(),
            "next_step": step.next_step.hex(),
            "evaluations": str(step.evaluations),
            "frames": " ".join(self.frames),
        }
        digest = _digest(arrays, numbers)
        write_atomically(self._checkpoint, save(arrays, metadata=numbers | {"sha256": digest}))

    def resume(self, device: torch.device) -> tuple[Resume, list[tuple[float, float]]] | None:
        """The state and the recorded distances of the last checkpoint; None without one, or when it is damaged."""
        try:
            blob = self._checkpoint.read_bytes()
            arrays, numbers = load(blob), _metadata(blob)
            if numbers.pop("sha256") != _digest(arrays, numbers):
                return None
            frames = []
            for number, checksum in enumerate(numbers["frames"].split()):
                frame = self._frame(number).read_bytes()
                if hashlib.sha256(frame).hexdigest() != checksum:
                    return None
                frames.append(load(frame)["tokens"].to(device))
            self.frames = numbers["frames"].split()
            state = Resume(
                steps=int(numbers["steps"]),
                time=float.fromhex(numbers["time"]),
                next_step=float.fromhex(numbers["next_step"]),
                evaluations=int(numbers["evaluations"]),
                tokens=arrays["tokens"].to(device),
                frames=tuple(frames),
            )
            return state, [(float(t), float(w)) for t, w in arrays["curve"]]
        except DAMAGE:
            return None

    def finish(
        self, spec: specs.Spec, arrays: Arrays, summary: Mapping[str, Any], provenance: Mapping[str, Any]
    ) -> Path:
        """Write the finished directory inside the partial one; ``publish`` moves it into place."""
        final = self.folder / "final"
        shutil.rmtree(final, ignore_errors=True)
        final.mkdir()
        blob = save({name: array.contiguous() for name, array in arrays.items()}, metadata={"format": FORMAT})
        contents = {ARRAYS: blob, SPEC: tomli_w.dumps(specs.to_table(spec)).encode(), SUMMARY: as_json(summary)}
        for name, content in contents.items():
            write_atomically(final / name, content)
        checksums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        facts = {"format": FORMAT, "identity": self.identity, "sha256": checksums}
        write_atomically(final / PROVENANCE, as_json(dict(provenance) | facts))
        return final

    def publish(self) -> None:
        """Move the finished directory into place, unless something else was put there meanwhile."""
        old = _old(self.out)
        for attempt in range(5):
            _refuse_foreign(self.out, self.identity, self.force)
            if self.out.exists():
                shutil.rmtree(old, ignore_errors=True)  # left by a crash; ``out`` is whole
                os.rename(self.out, old)
            try:
                os.rename(self.folder / "final", self.out)
                break
            except OSError as error:
                # A reader may just have put the old directory back (``recover``).
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or attempt == 4:
                    raise
        self.published = True
        sync_folder(self.out.parent)
        shutil.rmtree(old, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def load_run(path: str | Path) -> Trajectory:
    """The Trajectory stored in a run directory, checked against its checksums.

    Its heads and its stepper are rebuilt, so that every verb that takes a fresh run takes this one.

    Parameters
    ----------
    path : path
        The folder that ``frostline simulate`` wrote.

    Returns
    -------
    Trajectory
        The run with the times it kept.

    Raises
    ------
    BadRun
        The folder is no whole run directory, or a file in it was changed.

    Examples
    --------
    >>> load_run("no such folder")
    Traceback (most recent call last):
        ...
    frostline.errors.BadRun: no such folder is not a run directory: there is no such folder.
    """
    if not isinstance(path, str | Path):
        raise BadRun(f"{path!r} is not a path; give the folder of a run.")
    folder = Path(path)
    recover(folder)
    _check(folder)
    summary, spec = read_summary(folder), specs.read_spec(folder / SPEC)
    try:
        arrays = load((folder / ARRAYS).read_bytes())
        weights = arrays.get("weights")
        _check_shapes(arrays)
        return Trajectory(
            times=arrays["times"].numpy(),
            tokens=arrays["tokens"].numpy(),
            weights=None if weights is None else weights.numpy(),
            status=Status(summary["status"]),
            layers=_heads_from(arrays),
            initial=arrays["initial"].numpy(),
            stepper=build_stepper(spec),
            until=float(summary["until"]),
            steps=int(summary["steps"]),
            evaluations=int(summary["evaluations"]),
        )
    except (SafetensorError, KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        raise BadRun(f"{folder} was not written by this version of frostline: {error}.") from None


def _check_shapes(arrays: Arrays) -> None:
    """Raise BadRun when the arrays do not fit together."""
    times, tokens, initial = arrays["times"], arrays["tokens"], arrays["initial"]
    if times.ndim != 1 or tokens.ndim != 3 or initial.ndim != 2 or len(times) != len(tokens) or not len(initial):
        raise BadRun("its times, tokens and initial tokens do not fit together")
    if tokens.shape[1:] != initial.shape or ("weights" in arrays and arrays["weights"].shape != initial.shape[:1]):
        raise BadRun(f"it has {len(initial)} initial tokens, and other numbers of tokens or weights")
    rising = bool((times >= 0).all() and (times.diff() > 0).all())
    if not rising or not all(bool(torch.isfinite(array).all()) for array in arrays.values()):
        raise BadRun("its times do not rise, or some number in it is not finite")


def heads_as_arrays(layers: Sequence[Sequence[Attention]]) -> Arrays:
    """The matrices of all heads; the run directory stores them since files that a spec names may change or vanish."""
    return {
        f"layer{i}.head{j}.{name}": tensor.cpu()
        for i, layer in enumerate(layers)
        for j, head in enumerate(layer)
        for name, tensor in head.tensors.items()
    }


def _heads_from(arrays: Arrays) -> tuple[Layer, ...]:
    layers: dict[int, dict[int, dict[str, Tensor]]] = {}
    for name, tensor in arrays.items():
        if name.startswith("layer"):
            layer, head, part = name.split(".")
            layers.setdefault(int(layer[5:]), {}).setdefault(int(head[4:]), {})[part] = tensor
    return as_layers([[Attention.from_tensors(heads[j]) for j in sorted(heads)] for _, heads in sorted(layers.items())])


def read_summary(folder: Path) -> dict[str, Any]:
    """summary.json of a run directory."""
    summary = _read_json(folder, SUMMARY, ("status", "steps", "until", "evaluations"))
    if summary["status"] not in list(Status):
        raise BadRun(f"{folder / SUMMARY} has the unknown status {summary['status']!r}.")
    return summary


def read_provenance(folder: Path) -> dict[str, Any]:
    """provenance.json of a run directory."""
    facts = _read_json(folder, PROVENANCE, ("format", "identity", "sha256"))
    if facts["format"] != FORMAT or not isinstance(facts["sha256"], dict):
        raise BadRun(f"{folder / PROVENANCE} is of the format {facts['format']!r}; this version reads {FORMAT!r}.")
    return facts


def finished(out: Path, identity: str) -> bool:
    """Whether ``out`` already holds this very run, undamaged."""
    recover(out)
    try:
        _check(out)
        return bool(read_provenance(out)["identity"] == identity)
    except FrostlineError:
        return False


def _check(folder: Path) -> None:
    """Raise BadRun unless every file of the run is present and unchanged."""
    checksums = read_provenance(folder)["sha256"]
    for name in (ARRAYS, SPEC, SUMMARY):
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            raise BadRun(f"{folder} is not a whole run directory: {name}: {error.strerror}.") from None
        if hashlib.sha256(content).hexdigest() != checksums.get(name):
            raise BadRun(f"{folder / name} is truncated or was changed: its checksum differs; run the spec again.")


def recover(out: Path) -> None:
    """Put the old directory back after a crash between its removal and the arrival of the new one."""
    old = _old(out)
    if (old / PROVENANCE).exists() and not out.exists():
        os.rename(old, out)


def _refuse_foreign(out: Path, identity: str, force: bool) -> None:
    """Raise BadRun where ``out`` is not a run directory, or is that of another spec and ``force`` is not set."""
    if not out.exists():
        return
    try:
        provenance = read_provenance(out)
    except FrostlineError:
        if out.is_dir() and not any(out.iterdir()):
            out.rmdir()
            return
        raise BadRun(f"{out} exists and is not a frostline run directory; choose another out.") from None
    if provenance["identity"] != identity and not force:
        raise BadRun(f"{out} holds a run of another spec; choose another out, or replace it with --force.")


def _read_json(folder: Path, name: str, needed: tuple[str, ...]) -> dict[str, Any]:
    if not folder.is_dir():
        raise BadRun(f"{folder} is not a run directory: there is no such folder.")
    try:
        facts = json.loads((folder / name).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRun(f"{folder} is not a whole run directory: {name}: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise BadRun(f"{folder / name} is not readable JSON: truncated or changed; run the spec again.") from None
    missing = [key for key in needed if not isinstance(facts, dict) or key not in facts]
    if missing:
        raise BadRun(f"{folder / name} lacks {', '.join(missing)}; it was not written by frostline.")
    return facts


def _metadata(blob: bytes) -> dict[str, str]:
    """The metadata of a safetensors file, which its byte loader drops: the header is JSON behind a length."""
    length = int.from_bytes(blob[:8], "little")
    return dict(json.loads(blob[8 : 8 + length])["__metadata__"])


def _digest(arrays: Arrays, numbers: Mapping[str, str]) -> str:
    """The checksum of a checkpoint."""
    digest = hashlib.sha256(json.dumps(dict(numbers), sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name].contiguous()
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
        digest.update(array.numpy().tobytes())
    return digest.hexdigest()


def _old(out: Path) -> Path:
    """The place of the directory that is being replaced."""
    return out.parent / f".{out.name}.old"
