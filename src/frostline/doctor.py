"""doctor: what is installed, which engines and devices work, and how fast; for pasting into a bug report."""

import importlib.metadata as metadata
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from frostline import __version__
from frostline.sweeping.cluster import cores

TOKENS = 4000
CLOSE = 1e-6
"""How far two engines may be apart: their tolerance is a tenth of it."""
FAR = 0.3
"""How far the tokens of the small run may still be from their limit (0.06 is right)."""
SECRET = re.compile(r"\S*[/@\\=]\S*")
"""What has no place in a bug report, in somebody else's error messages: paths, addresses, settings."""


@dataclass(frozen=True)
class Package:
    """``needed_by``: "frostline" itself, or the extras that bring it."""

    name: str
    version: str | None
    needed_by: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """Something that was tried; ``seconds`` of the second, warm time; ``says`` what was seen or what went wrong."""

    name: str
    works: bool | None
    """None where it cannot be tried: no such device, or an extra that is not installed."""
    says: str
    seconds: float | None = None


@dataclass(frozen=True)
class Examination:
    """``facts()`` for machines; ``well``: whether everything that can be tried works."""

    frostline: str
    python: str
    system: str
    cores: int
    memory_gib: float
    packages: tuple[Package, ...]
    trials: tuple[Trial, ...]

    @property
    def well(self) -> bool:
        return all(trial.works is not False for trial in self.trials)

    def facts(self) -> dict[str, Any]:
        return asdict(self) | {"well": self.well}


def examine(tick: Callable[[str], None] = lambda name: None) -> Examination:
    """Look and try; a few seconds, half a minute where loops must be compiled first."""
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
    """What the metadata of this very installation asks for; extras for developers aside."""
    wanted: dict[str, set[str]] = {}
    for line in metadata.requires("frostline") or ():
        name = re.split(r"[\s\[<>=!~;(]", line, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        if name != "frostline":
            wanted.setdefault(name, set()).add(extra[1] if extra else "frostline")
    for name, users in wanted.items():
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


def _tried(name: str, work: Callable[[], str]) -> Trial:
    """Twice: the first time may compile."""
    try:
        work()
        start = time.perf_counter()
        says = work()
        return Trial(name, True, says, time.perf_counter() - start)
    except (Exception, SystemExit) as error:
        return Trial(name, False, _told(error))


def _told(error: BaseException) -> str:
    """The kind of an error. Words only of those that are about modules or numbers: others may quote anything."""
    if not isinstance(error, ImportError | ArithmeticError):
        return f"{type(error).__name__}, in {_where(error)}"
    plain = "".join(letter for letter in str(error) if letter.isprintable())
    return f"{type(error).__name__}: {SECRET.sub('…', plain)[:200]}"


def _where(error: BaseException) -> str:
    """The module that raised it."""
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
        found = np.asarray(mean_map(head, cloud, engine=name).cpu())
        # Some queries by the formula itself, in numpy alone.
        logits = 300.0 * (x[:50] * [1.0, 0.5, 0.2]) @ x.T
        weights = np.exp(logits - logits.max(1, keepdims=True))
        apart = float(np.abs(found[:50] - weights @ x / weights.sum(1, keepdims=True)).max())
        if not apart <= CLOSE:
            raise ArithmeticError(f"{apart:.1e} away from the formula ({CLOSE:g} is allowed)")
        return f"mean map of {TOKENS:,} tokens in d = 3, {apart:.0e} from the formula"

    if name == "cuda":
        try:
            import torch

            if not torch.cuda.is_available():
                return Trial(title, None, f"torch {torch.__version__} sees no GPU")
            told = torch.cuda.get_device_name()
        except (Exception, SystemExit) as error:
            return Trial(title, None, _told(error))
        done = _tried(title, work)
        return Trial(title, done.works, f"{told}: {done.says}", done.seconds)
    return _tried(title, work)


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

    return _tried("simulate", work)


def _wasserstein() -> Trial:
    def work() -> str:
        from frostline.sample import uniform
        from frostline.transport.solve import wasserstein

        found = wasserstein(uniform(2000, 3, seed=0), uniform(2000, 3, seed=1), method="bracket")
        if not 0 < found.lower <= found.upper <= 2:
            raise ArithmeticError(f"the bracket is {found.lower} to {found.upper}")
        return f"2,000 against 2,000 tokens: between {found.lower:.4f} and {found.upper:.4f}"

    return _tried("wasserstein", work)


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

    return _tried("encoders", work)
