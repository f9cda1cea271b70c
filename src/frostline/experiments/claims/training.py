"""Beyond the paper: training cools a head, and what zero temperature predicts for it becomes the answer to its task."""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional

from frostline import plot
from frostline.attention import Attention
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Rows, Tick, arrays, read_prose
from frostline.theory.limits import limit

KEYS = 8
"""Different keys."""
VALUES = 4
"""Different values of a key."""
PAIRS = 6
"""Pairs of a key and a value in a context."""
DIMENSION = 24
"""Dimension of the space of tokens."""
RANK = 8
"""Rank of query, key and value."""
LEARNING_RATE = 0.01
"""Learning rate of Adam."""
BATCH = 256
"""Questions in a step of training."""
ANSWERS = ("true", "random", "of the key")
"""Answers to train on: the value of the key in the question; random ones; another task, which needs no context."""


@dataclass(frozen=True)
class Size:
    steps: int
    seeds: int
    records: int = 9


class TrainedHead:
    """One head on the sphere: the last token asks for a key, the others are pairs of key and value; it names the value.

    Tokens are unit vectors; the asking token moves by V m(x), as in eq. 2, and a linear layer reads it.
    """

    def __init__(self, rng: np.random.Generator):
        def drawn(*shape: int) -> Tensor:
            return torch.tensor(rng.standard_normal(shape) / np.sqrt(shape[-1]), requires_grad=True)

        self.pairs, self.asks = drawn(KEYS * VALUES, DIMENSION), drawn(KEYS, DIMENSION)
        self.query, self.key = drawn(RANK, DIMENSION), drawn(RANK, DIMENSION)
        self.value, self.read = drawn(DIMENSION, DIMENSION), drawn(VALUES, DIMENSION)

    @property
    def parameters(self) -> list[Tensor]:
        return [self.pairs, self.asks, self.query, self.key, self.value, self.read]

    def __call__(self, context: Tensor, asked: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of the values, attention of the asking token, and |Bᵀx| = κ of it; for a batch."""
        y = functional.normalize(self.pairs[context], dim=-1)
        x = functional.normalize(self.asks[asked], dim=-1)
        looking = x @ self.query.T @ self.key
        weights = torch.softmax((y @ looking[..., None])[..., 0], dim=-1)
        seen = (weights[..., None] * y).sum(-2)
        return (x + seen @ self.value.T) @ self.read.T, weights, torch.linalg.vector_norm(looking, dim=-1)

    def at_zero_temperature(self, context: Tensor, asked: Tensor) -> Tensor:
        """Scores of the values when the asking token sees y*, the best-scoring token present, and nothing else."""
        with torch.no_grad():
            y = functional.normalize(self.pairs[context], dim=-1)
            x = functional.normalize(self.asks[asked], dim=-1)
            best = (y @ (x @ self.query.T @ self.key)[..., None])[..., 0].argmax(-1)
            return (x + y[torch.arange(len(y)), best] @ self.value.T) @ self.read.T

    @property
    def head(self) -> Attention:
        """B/‖B‖ and V, with β = ‖B‖: how cold training has made it."""
        query, key, value = (matrix.detach().numpy() for matrix in (self.query, self.key, self.value))
        beta = float(np.linalg.norm(query.T @ key, 2))
        return Attention(query=query / beta, key=key, value=value, beta=beta)


def questions(rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Different keys with values, one of them asked for, and its value."""
    keys = np.argsort(rng.random((count, KEYS)), axis=1)[:, :PAIRS]
    values = rng.integers(VALUES, size=(count, PAIRS))
    which = rng.integers(PAIRS, size=count)
    rows = np.arange(count)
    asked, answer = keys[rows, which], values[rows, which]
    return torch.from_numpy(keys * VALUES + values), torch.from_numpy(asked), torch.from_numpy(answer)


def taught(answers: str, asked: Tensor, answer: Tensor, rng: np.random.Generator) -> Tensor:
    """The answers that the encoder is trained on."""
    if answers == "random":
        return torch.from_numpy(rng.integers(VALUES, size=BATCH))
    return asked % VALUES if answers == "of the key" else answer


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    spectra = Rows(
        "seed",
        "answers",
        "step",
        "accuracy",
        "beta",
        "kappa",
        "largest_weight",
        "at_zero_temperature",
        "leading_A",
        "gap_A",
        "leading_V",
        "kind",
        "moved",
    )
    planes = Rows("seed", "answers", "step", "which", "real", "imaginary")
    marks = np.unique(np.round(np.geomspace(1, size.steps + 1, size.records)).astype(int) - 1)
    test = questions(np.random.default_rng([15, seed]), 2000)
    for number, answers in itertools.product(range(size.seeds), ANSWERS):
        tick(f"training, seed {number + 1} of {size.seeds}, answers: {answers}")
        rng = np.random.default_rng([14, seed, number])
        encoder = TrainedHead(rng)
        optimiser = torch.optim.Adam(encoder.parameters, lr=LEARNING_RATE)
        first: np.ndarray | None = None
        for step in range(size.steps + 1):
            if step in marks:
                first = _record(encoder, test, (number, answers, step), first, spectra, planes)
            context, asked, answer = questions(rng, BATCH)
            loss = functional.cross_entropy(encoder(context, asked)[0], taught(answers, asked, answer, rng))
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
    return Evidence({"spectra": spectra, "eigenvalues": planes})


def _record(
    encoder: TrainedHead,
    test: tuple[Tensor, Tensor, Tensor],
    which_one: tuple[int, str, int],
    first: np.ndarray | None,
    spectra: Rows,
    planes: Rows,
) -> np.ndarray:
    """Add what the theory says about the head now; returns its leading direction at the start."""
    context, asked, answer = test
    with torch.no_grad():
        scores, weights, kappa = encoder(context, asked)
    head = encoder.head
    _, V, A, _ = head.matrices
    limit_of_head = limit(head)
    values, vectors = np.linalg.eig(A)
    lead = int(values.real.argmax())
    direction = np.linalg.qr(np.stack([vectors[:, lead].real, vectors[:, lead].imag]).T)[0]
    direction = direction[:, :1] if abs(values[lead].imag) < 1e-12 else direction
    first = direction if first is None else first
    # The largest angle between the leading spaces then and now.
    cosines = np.linalg.svd(first.T @ direction, compute_uv=False)
    spectra.add(
        *which_one,
        float((scores.argmax(-1) == answer).double().mean()),
        head.beta,
        float(kappa.median()),
        float(weights.max(-1).values.mean()),
        float((encoder.at_zero_temperature(context, asked).argmax(-1) == answer).double().mean()),
        float(values[lead].real),
        np.nan if limit_of_head.gap is None else limit_of_head.gap,
        float(np.linalg.eigvals(V).real.max()),
        limit_of_head.kind,
        float(np.arccos(np.clip(cosines.min(), -1, 1))),
    )
    for which, matrix in (("A", A), ("V", V)):
        for value in np.linalg.eigvals(matrix):
            if abs(value) > 1e-10:
                planes.add(*which_one, which, value.real, value.imag)
    return first


def judge(evidence: Evidence) -> Judgement:
    table = arrays(evidence.tables["spectra"])
    begins, ends = table["step"] == table["step"].min(), table["step"] == table["step"].max()
    begin, end = (
        {what: {name: column[when & (table["answers"] == what)] for name, column in table.items()} for what in ANSWERS}
        for when in (begins, ends)
    )
    true, nothing, other = (end[what] for what in ANSWERS)
    first = begin["true"]
    colder = {what: end[what]["beta"] / begin[what]["beta"] for what in ANSWERS}
    lead = {what: end[what]["leading_V"] / begin[what]["leading_V"] for what in ANSWERS}
    checks = [
        Criterion(
            "the encoder learns its task, and its controls do not",
            f"from about chance (1 in {VALUES}) to 90 % right, for every seed; 40 % at most for the controls",
            _shares("accuracy", true, first, nothing, other),
            _apart("accuracy", true, first, nothing, other),
        ),
        Criterion(
            "what zero temperature predicts is what was learned: with y*, the best-scoring token, for all it sees",
            "it still answers 90 % right, for every seed; 40 % at most untrained, and with the controls' answers",
            _shares("at_zero_temperature", true, first, nothing, other),
            _apart("at_zero_temperature", true, first, nothing, other),
        ),
        Criterion(
            "training makes the head colder, β = ‖B‖; with answers drawn at random it does so less",
            "at least three times, and more than its control, for every seed",
            f"{_times(colder['true'])}; answers at random {_times(colder['random'])}; another task, that of the key "
            f"alone, {_times(colder['of the key'])}",
            bool(colder["true"].min() >= 3 and (colder["true"] > colder["random"]).all()),
        ),
        Criterion(
            "and its attention sharper: the largest weight",
            "above 0.8 at the end, below 0.6 with answers at random",
            f"{first['largest_weight'].mean():.2g} to {true['largest_weight'].min():.2g} or more; answers at random: "
            f"{nothing['largest_weight'].max():.2g} or less",
            bool(true["largest_weight"].min() > 0.8 and nothing["largest_weight"].max() < 0.6),
        ),
        Criterion(
            "the predicted terminal phase moves: V's leading eigenvalue, end over beginning",
            "more than with answers at random, for every seed",
            f"{_times(lead['true'])}; answers at random {_times(lead['random'])}",
            bool((lead["true"] > lead["random"]).all()),
        ),
    ]
    return Judgement(
        f"Training makes the head {colder['true'].mean():.2g} times colder, until its best-scoring token alone answers "
        f"{100 * true['at_zero_temperature'].min():.3g} % of the questions or more. (A's leading space turns by "
        f"{_between(true['moved'])} rad; with answers at random by {_between(nothing['moved'])}.)",
        checks,
    )


Columns = dict[str, np.ndarray]


def _apart(name: str, true: Columns, *controls: Columns) -> bool:
    """90 % or more with the true answers, 40 % or less in every control, for every seed."""
    return bool(true[name].min() >= 0.9 and max(control[name].max() for control in controls) <= 0.4)


def _shares(name: str, true: Columns, first: Columns, nothing: Columns, other: Columns) -> str:
    return (
        f"at least {100 * true[name].min():.3g} %; untrained {_percent(first[name])}, answers at random "
        f"{_percent(nothing[name])}, another task {_percent(other[name])}"
    )


def _percent(shares: np.ndarray) -> str:
    return f"{100 * shares.max():.3g} % or less"


def _times(ratios: np.ndarray) -> str:
    return ", ".join(f"×{x:.2g}" for x in ratios)


def _between(values: np.ndarray) -> str:
    return f"{values.min():.2g} to {values.max():.2g}"


def draw(evidence: Evidence) -> Figure:
    table, planes = arrays(evidence.tables["spectra"]), arrays(evidence.tables["eigenvalues"])
    (left, middle, right), figure = plot.panels(3, width=4.4)
    for number in np.unique(table["seed"]):
        selected = (table["seed"] == number) & (table["answers"] == "true")
        colour = plot.shade(int(number), len(np.unique(table["seed"])))
        for answers, style in (("random", ":"), ("of the key", "--")):
            control = (table["seed"] == number) & (table["answers"] == answers)
            middle.semilogy(table["step"][control], table["beta"][control], style, lw=1, color=plot.NOWHERE)
            left.plot(table["step"][control], table["at_zero_temperature"][control], style, lw=1, color=plot.NOWHERE)
        left.plot(table["step"][selected], table["accuracy"][selected], "--", lw=1, color=colour)
        left.plot(table["step"][selected], table["at_zero_temperature"][selected], "-", lw=2, color=colour)
        middle.semilogy(table["step"][selected], table["beta"][selected], "o-", ms=3, color=colour)
    left.set(xlabel="training step", title="right answers; solid: at zero temperature", ylim=(0, 1.05), xscale="symlog")
    middle.set(
        xlabel="training step",
        ylabel="β = ‖B‖",
        title="training cools the head",
        xscale="symlog",
    )
    for ax in (left, middle):
        ax.set_xlim(0, table["step"].max())
    selected = (planes["seed"] == 0) & (planes["answers"] == "true")
    steps = np.unique(planes["step"][selected])
    for number, step in enumerate(steps):
        chosen = selected & (planes["step"] == step) & (planes["which"] == "A")
        label = f"step {step:g}" if number in (0, len(steps) - 1) else None
        right.plot(
            planes["real"][chosen],
            planes["imaginary"][chosen],
            "o",
            ms=4,
            color=plot.shade(number, len(steps)),
            label=label,
        )
    right.set(xlabel="Re λ", ylabel="Im λ", title="eigenvalues of A = VBᵀ through training")
    right.legend(fontsize=8, frameon=False)
    return figure


CLAIM = Claim(
    name="training",
    prose=read_prose(__name__),
    sizes={"test": Size(150, 1, 6), "full": Size(2000, 5, 15)},
    seconds={"test": 3, "full": 75},
    measure=measure,
    judge=judge,
    draw=draw,
    beyond=True,
)
