"""Beyond the paper: training moves the spectra, and with them the predicted limit and terminal phase."""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional

from frostline import plot
from frostline.attention import Attention
from frostline.experiments.claim import Check, Claim, Evidence, Judgement, Rows, Tick, arrays
from frostline.theory.limits import limit

KEYS, VALUES, PAIRS = 8, 4, 6
DIMENSION, RANK = 24, 8
LEARNING_RATE = 0.01
BATCH = 256
ANSWERS = ("true", "random")


@dataclass(frozen=True)
class Size:
    steps: int
    seeds: int
    records: int = 9


class Encoder:
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


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    spectra = Rows(
        "seed",
        "answers",
        "step",
        "accuracy",
        "beta",
        "kappa",
        "largest_weight",
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
        tick(f"training, seed {number + 1} of {size.seeds}, {answers} answers")
        rng = np.random.default_rng([14, seed, number])
        encoder = Encoder(rng)
        optimiser = torch.optim.Adam(encoder.parameters, lr=LEARNING_RATE)
        first: np.ndarray | None = None
        for step in range(size.steps + 1):
            if step in marks:
                first = _record(encoder, test, (number, answers, step), first, spectra, planes)
            context, asked, answer = questions(rng, BATCH)
            if answers == "random":
                answer = torch.from_numpy(rng.integers(VALUES, size=BATCH))
            loss = functional.cross_entropy(encoder(context, asked)[0], answer)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
    return Evidence({"spectra": spectra, "eigenvalues": planes})


def _record(
    encoder: Encoder,
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
    found = limit(head)
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
        float(values[lead].real),
        np.nan if found.gap is None else found.gap,
        float(np.linalg.eigvals(V).real.max()),
        found.kind,
        float(np.arccos(np.clip(cosines.min(), -1, 1))),
    )
    for which, matrix in (("A", A), ("V", V)):
        for value in np.linalg.eigvals(matrix):
            if abs(value) > 1e-10:
                planes.add(*which_one, which, value.real, value.imag)
    return first


def judge(evidence: Evidence) -> Judgement:
    table = arrays(evidence.tables["spectra"])
    taught = table["answers"] == "true"
    begins, ends = table["step"] == table["step"].min(), table["step"] == table["step"].max()
    first, last = taught & begins, taught & ends
    colder = table["beta"][last] / table["beta"][first]
    blunt = table["largest_weight"][~taught & ends]
    for_nothing = table["beta"][~taught & ends] / table["beta"][~taught & begins]
    moved = table["moved"][last]
    checks = [
        Check(
            "the encoder learns its task",
            f"from about chance (1 in {VALUES}) to 90 % right, for every seed",
            f"{100 * table['accuracy'][first].mean():.3g} % to {100 * table['accuracy'][last].min():.3g} % or more",
            bool(table["accuracy"][last].min() >= 0.9 and table["accuracy"][first].max() <= 0.5),
        ),
        Check(
            "training makes the head colder: β = ‖B‖",
            "at least three times, for every seed",
            ", ".join(f"×{x:.2g}" for x in colder),
            bool(colder.min() >= 3),
        ),
        Check(
            "it is the task that does it: the same training with answers drawn at random",
            "cools less, and leaves attention blunt (largest weight below 0.6), for every seed",
            ", ".join(f"×{x:.2g}" for x in for_nothing) + f"; weights up to {blunt.max():.2g}",
            bool((for_nothing < colder).all() and blunt.max() < 0.6),
        ),
        Check(
            "and its attention sharper: the largest weight",
            "above 0.8 at the end",
            f"{table['largest_weight'][first].mean():.2g} to {table['largest_weight'][last].min():.2g} or more",
            bool(table["largest_weight"][last].min() > 0.8),
        ),
        Check(
            "the predicted limit moves: angle of A's leading space to where it began",
            "more than 0.3 rad for every seed",
            ", ".join(f"{x:.2g}" for x in moved) + f" (kinds now: {', '.join(table['kind'][last])})",
            bool(moved.min() > 0.3),
        ),
        Check(
            "and so does the terminal phase: V's leading eigenvalue",
            "changes by more than 20 % (median of the seeds)",
            ", ".join(
                f"{a:.2g} → {b:.2g}" for a, b in zip(table["leading_V"][first], table["leading_V"][last], strict=True)
            ),
            bool(np.median(np.abs(table["leading_V"][last] / table["leading_V"][first] - 1)) > 0.2),
        ),
    ]
    return Judgement(
        f"Training makes the head {colder.mean():.2g} times colder and turns A's leading space by {moved.min():.2g} to "
        f"{moved.max():.2g} rad: the predicted limit is learned, not given.",
        checks,
    )


def draw(evidence: Evidence) -> Figure:
    table, planes = arrays(evidence.tables["spectra"]), arrays(evidence.tables["eigenvalues"])
    (left, middle, right), figure = plot.panels(3, width=4.4)
    for number in np.unique(table["seed"]):
        mine = (table["seed"] == number) & (table["answers"] == "true")
        nothing = (table["seed"] == number) & (table["answers"] == "random")
        colour = plot.shade(int(number), len(np.unique(table["seed"])))
        middle.semilogy(table["step"][nothing], table["beta"][nothing], ":", lw=1, color=plot.NOWHERE)
        left.plot(table["step"][mine], table["accuracy"][mine], "--", lw=1, color=colour)
        left.plot(table["step"][mine], table["largest_weight"][mine], "-", lw=2, color=colour)
        middle.semilogy(table["step"][mine], table["beta"][mine], "o-", ms=3, color=colour)
    left.set(
        xlabel="training step", title="dashed: right answers; solid: largest weight", ylim=(0, 1.05), xscale="symlog"
    )
    middle.set(
        xlabel="training step",
        ylabel="β = ‖B‖",
        title="training cools the head",
        xscale="symlog",
    )
    for ax in (left, middle):
        ax.set_xlim(0, table["step"].max())
    mine = (planes["seed"] == 0) & (planes["answers"] == "true")
    steps = np.unique(planes["step"][mine])
    for number, step in enumerate(steps):
        chosen = mine & (planes["step"] == step) & (planes["which"] == "A")
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
    title="Training moves spectra",
    statement="Temperature and spectra are not given but learned: training makes a head colder, and moves the leading"
    " spaces of A = VBᵀ and of V, so the predicted limit and the predicted terminal phase move with it.",
    reading="Left: how often a small encoder answers right, and how sharply it attends. Middle: its inverse "
    "temperature; dotted, when the answers it is trained on are drawn at random. Right: the nonzero "
    "eigenvalues of A of the first seed, from the first step (light) to the last (dark).",
    assumed="One head of rank 8 in d = 24 that has to look up a value by its key; tokens on the unit sphere, Adam, "
    "a few seeds. β is ‖B‖ with B taken on the unit sphere. What the limit of one head means inside a "
    "trained network is another question (section 11).",
    sizes={"test": Size(150, 1, 6), "full": Size(2000, 5, 15)},
    seconds={"test": 2, "full": 50},
    measure=measure,
    judge=judge,
    draw=draw,
    beyond=True,
)
