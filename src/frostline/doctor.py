"""The examination of an installation: its packages, its engines and devices, how fast they are; for bug reports."""

import importlib.metadata as metadata
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from frostline import __version__
from frostline.results import Result
from frostline.sweeping.cluster import cores

TOKENS = 4000
"""Tokens of the mean map that engines are tried on."""
CLOSE = 1e-6
"""Largest distance of an engine's answer from the formula; its tolerance is a tenth of it."""
FAR = 0.3
"""Largest mean distance of the small run's tokens from their limit (0.06 is right)."""
FILES_OF_0_1 = ("run directories", "tables of sweeps", "baselines", "event files")
"""Files of frostline 0.1 that this version opens as they are; tests/formats opens one of each."""
SECRET = re.compile(r"\S*[/@\\=]\S*")
"""Parts of error messages that do not belong into a bug report: paths, addresses, settings."""


@dataclass(frozen=True, repr=False)
class Package(Result):
    """A package, its version, and who needs it: "frostline" itself, or the extras that bring it."""

    name: str
    version: str | None
    needed_by: tuple[str, ...]

    def describe(self) -> str:
        """The package and its version."""
        return f"{self.name} {self.version or 'NOT INSTALLED'}"


@dataclass(frozen=True, repr=False)
class Trial(Result):
    """One trial: whether it ``works``, the outcome or the error (``says``), the ``seconds`` of its second, warm run.

    ``works`` is None where nothing can be tried: there is no such device, or an extra is not installed.
    """

    name: str
    works: bool | None
    says: str
    seconds: float | None = None

    def describe(self) -> str:
        """The verdict, the outcome and the time, as a line of a table."""
        verdict = {True: "works", False: "FAILS", None: "-"}[self.works]
        seconds = "" if self.seconds is None else f" ({1000 * self.seconds:.0f} ms)"
        return f"{verdict:>6}  {self.name}: {self.says}{seconds}"


@dataclass(frozen=True, repr=False)
class Examination(Result):
    """Versions, packages and trials; ``well``: whether everything that can be tried works.

    ``old_files``: kinds of files of frostline 0.1 that open as they are.
    """

    frostline: str
    python: str
    system: str
    cores: int
    memory_gib: float
    packages: tuple[Package, ...]
    trials: tuple[Trial, ...]
    old_files: tuple[str, ...] = FILES_OF_0_1

    @property
    def well(self) -> bool:
        """Whether no trial failed."""
        return all(trial.works is not False for trial in self.trials)

    def describe(self) -> str:
        """The machine, each trial, and the packages by who needs them."""
        needed: dict[tuple[str, ...], list[str]] = {}
        for package in self.packages:
            needed.setdefault(package.needed_by, []).append(package.describe())
        lines = [
            f"frostline {self.frostline}, Python {self.python}, {self.system}",
            f"{self.cores} cores, {self.memory_gib:.1f} GiB of memory",
            "",
            *(trial.describe() for trial in self.trials),
            "",
        ]
        for users, names in needed.items():
            title = "needed" if users == ("frostline",) else f"frostline[{', '.join(users)}]"
            lines.append(f"{title}: {', '.join(sorted(names))}")
        lines += ["", f"files of frostline 0.1 open as they are, none needs an upgrade: {', '.join(self.old_files)}"]
        return "\n".join(lines)

    def headline(self) -> str:
        """The version, and the trials that failed."""
        failed = [trial.name for trial in self.trials if trial.works is False]
        return f"frostline {self.frostline}: " + (f"failed: {', '.join(failed)}" if failed else "everything works")

    def facts(self) -> dict[str, Any]:
        """All of it, and whether everything works, as ``frostline doctor --json`` prints it."""
        return super().facts() | {"well": self.well}


def examine(tick: Callable[[str], None] = lambda name: None) -> Examination:
    """Try everything: a few seconds, or half a minute where loops must be compiled first."""
    trials = []
    for name, trial in _trials():
        tick(name)
        trials.append(trial())
    return Examination(
        frostline=__version__,
        python=sys.version.split()[0],
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        cores=cores(),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        packages=tuple(packages()),
        trials=tuple(trials),
    )


def packages() -> Iterator[Package]:
    """The packages that this installation's metadata asks for, without those of extras for developers."""
    needed: dict[str, set[str]] = {}
    for line in metadata.requires("frostline") or ():
        name = re.split(r"[\s\[<>=!~;(]", line, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        if name != "frostline":
            needed.setdefault(name, set()).add(extra[1] if extra else "frostline")
    for name, users in needed.items():
        users -= {"dev", "docs", "bench", "all"}
        if users:
            try:
                version: str | None = metadata.version(name)
            except metadata.PackageNotFoundError:
                version = None
            yield Package(name, version, tuple(sorted(users)))


def _trials() -> Iterator[tuple[str, Callable[[], Trial]]]:
    for engine in ("dense", "tree", "cuda"):
        yield f"engine {engine}", lambda engine=engine: _engine(engine)  # type: ignore[misc]
    yield "simulate", _simulate
    yield "wasserstein", _wasserstein
    yield "encoders", _encoders


def _try(name: str, work: Callable[[], str]) -> Trial:
    """Do the work twice, since the first time may compile, and time the second."""
    try:
        work()
        start = time.perf_counter()
        says = work()
        return Trial(name, True, says, time.perf_counter() - start)
    except (Exception, SystemExit) as error:
        return Trial(name, False, _error_in_words(error))


def _error_in_words(error: BaseException) -> str:
    """The kind of an error, with its message only if it is about modules or numbers: others may quote anything."""
    if not isinstance(error, ImportError | ArithmeticError):
        return f"{type(error).__name__}, in {_where(error)}"
    plain = "".join(letter for letter in str(error) if letter.isprintable())
    return f"{type(error).__name__}: {SECRET.sub('…', plain)[:200]}"


def _where(error: BaseException) -> str:
    """The module that raised the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else str(trace.tb_frame.f_globals.get("__name__", "?"))


def _engine(name: str) -> Trial:
    title = f"engine {name}"

    def work() -> str:
        import numpy as np
        import torch

        from frostline.attention import Attention
        from frostline.dynamics.mean_map import mean_map
        from frostline.sample import uniform

        head = Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=300.0)
        x = uniform(TOKENS, 3, seed=0)
        cloud = torch.from_numpy(x).to("cuda" if name == "cuda" else "cpu")
        means = np.asarray(mean_map(head, cloud, engine=name).cpu())
        # Some queries by the formula itself, in numpy alone.
        logits = 300.0 * (x[:50] * [1.0, 0.5, 0.2]) @ x.T
        weights = np.exp(logits - logits.max(1, keepdims=True))
        apart = float(np.abs(means[:50] - weights @ x / weights.sum(1, keepdims=True)).max())
        if not apart <= CLOSE:
            raise ArithmeticError(f"{apart:.1e} away from the formula ({CLOSE:g} is allowed)")
        return f"mean map of {TOKENS:,} tokens in d = 3, {apart:.0e} from the formula"

    if name == "cuda":
        try:
            import torch

            if not torch.cuda.is_available():
                return Trial(title, None, f"torch {torch.__version__} sees no GPU")
            device = torch.cuda.get_device_name()
        except (Exception, SystemExit) as error:
            return Trial(title, None, _error_in_words(error))
        trial = _try(title, work)
        return Trial(title, trial.works, f"{device}: {trial.says}", trial.seconds)
    return _try(title, work)


def _simulate() -> Trial:
    def work() -> str:
        import numpy as np

        from frostline.attention import Attention
        from frostline.dynamics.simulation import simulate
        from frostline.dynamics.steppers import Euler
        from frostline.sample import uniform
        from frostline.theory.limits import limit

        head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=100.0)
        x0 = uniform(1000, 2, seed=0)
        run = simulate(head, x0, until=5.0, stepper=Euler(0.1))
        far = float(np.linalg.norm(np.asarray(run.tokens[-1]) - np.asarray(limit(head)(x0)), axis=1).mean())
        if not far <= FAR:
            raise ArithmeticError(f"{far:.3f} from their limit on average ({FAR:g} is allowed)")
        return f"1,000 tokens, 50 layers: {far:.3f} from their limit on average"

    return _try("simulate", work)


def _wasserstein() -> Trial:
    def work() -> str:
        from frostline.sample import uniform
        from frostline.transport.solve import wasserstein

        distance = wasserstein(uniform(2000, 3, seed=0), uniform(2000, 3, seed=1), method="bracket")
        if not 0 < distance.lower <= distance.upper <= 2:
            raise ArithmeticError(f"the bracket is {distance.lower} to {distance.upper}")
        return f"2,000 against 2,000 tokens: between {distance.lower:.4f} and {distance.upper:.4f}"

    return _try("wasserstein", work)


def _encoders() -> Trial:
    try:
        metadata.version("transformers")
    except metadata.PackageNotFoundError:
        return Trial("encoders", None, "transformers is not installed: pip install 'frostline[encoders]'")

    def work() -> str:
        import torch
        import transformers

        from frostline.auditing.audit import audit

        config = transformers.BertConfig(
            vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = transformers.BertModel(config).eval()  # type: ignore[no-untyped-call]
        return f"a small BERT taken apart: {audit(model).proof.describe()}"

    return _try("encoders", work)
