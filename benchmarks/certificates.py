"""How long certificates last: random symmetric problems, each certified through its plateau, beside the true distance.

    python -m benchmarks.certificates [--problems 100] [--dimensions 2 3 4 5 6] [--tokens 1000] [--out FILE]

B is a random rotation of eigenvalues uniform in [.2, 1], V = I, β = 10^U(2,5), tokens uniform. A run lasts
2·log β/gap, at most 80. Its plateau is where W₂ is within a quarter of its smallest value; the middle is the kept time
nearest to the geometric mean of the first and the last such time. W₂ is exact (two atoms). A certificate is not vacuous
when it is below W₂ at t = 0. With --out one line of JSON per problem is added to FILE, and problems that are in it
already are not run again. A problem takes seconds in d = 2, 3, 4 and some ten in d = 5, 6. Not part of ``make bench``.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from scipy.special import logsumexp

import frostline as fl
from frostline.analysis.distance import Measure
from frostline.theory.sides import Sides

LONGEST = 80.0
"""The longest run."""
TIMES = 48
"""Kept times, evenly spaced in log t."""
NEAR = 1.25
"""The plateau: W₂ is at most this times its smallest value."""

FROZEN = 0.9
"""A run whose W₂ stays above this times its start has frozen."""


def problem(d: int, number: int, tokens: int) -> tuple[fl.Attention, np.ndarray]:
    """The head and the initial tokens of one problem."""
    rng = np.random.default_rng([29, d, number])
    values, turn = rng.uniform(0.2, 1, d), np.linalg.qr(rng.standard_normal((d, d)))[0]
    B = (turn * values) @ turn.T
    head = fl.Attention.from_matrices((B + B.T) / 2, np.eye(d), 10 ** rng.uniform(2, 5))
    return head, fl.sample.uniform(tokens, d, seed=rng)


def keeping(head: fl.Attention, x: np.ndarray) -> float:
    """The share of tokens that keep their side at t = 0 by (19) and (20) alone, with Λ summed by hand."""
    key = x @ head.matrices.B
    s = np.linalg.norm(key, axis=1)
    logits = -head.beta * s[:, None] / 2 * ((key / s[:, None])[:, None, :] - x[None]) ** 2 @ np.ones(x.shape[1])
    exponent = np.log(len(x)) - logsumexp(logits, axis=1)
    sides = Sides.of(head)
    angle = sides.angles(x)
    return float((sides.rate(angle, angle, exponent, speeds=(s, s)) < 0).mean())


def certify(d: int, number: int, tokens: int) -> dict[str, Any]:
    """One problem: its certificate in the middle of its plateau, the true distance there and at t = 0, and times."""
    head, x0 = problem(d, number, tokens)
    until = min(LONGEST, 2 * np.log(head.beta) / fl.limit(head).gap)
    times = np.append(0.0, np.geomspace(0.25, until, TIMES))
    began = time.process_time()
    run = fl.simulate(head, x0, until=until, save_at=times)
    ran = time.process_time()
    proven = fl.certificate(run)
    done = time.process_time()
    true = Measure.of_run(run).along(run)
    near = np.flatnonzero(true <= NEAR * true.min())
    # A frozen run is near its smallest distance from the first step on.
    first, last = times[max(near[0], 1)], times[near[-1]]
    middle = int(np.argmin(np.abs(np.log(times[1:] ** 2 / (first * last))))) + 1
    return {
        "d": d,
        "number": number,
        "beta": head.beta,
        "until": until,
        "middle": times[middle],
        "W0": true[0],
        "W": true[middle],
        "certified": proven.values[middle],
        "by_path": proven.by_path[middle],
        "by_sides": proven.by_sides[middle],
        "ruled_by": proven.ruled_by[middle],
        "vacuous": bool(proven.vacuous[middle]),
        "below_truth": int((proven.values < true).sum()),
        "keeping": keeping(head, x0),
        "run_s": ran - began,
        "certificate_s": done - ran,
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """A line for a dimension."""
    share = np.mean([not row["vacuous"] for row in rows])
    path = np.mean([row["by_path"] < row["W0"] for row in rows])
    ratio = np.median([row["certified"] / row["W"] for row in rows if not row["vacuous"]] or [np.nan])
    theory = np.mean([row["keeping"] >= 0.5 for row in rows])
    frozen = np.mean([row["W"] > FROZEN * row["W0"] for row in rows])
    cost = np.median([row["certificate_s"] / row["run_s"] for row in rows])
    return (
        f"d = {rows[0]['d']}: {len(rows)} problems, below the true W₂ {sum(row['below_truth'] for row in rows)} times; "
        f"not vacuous {100 * share:.0f} % (by paths alone {100 * path:.0f} %; by sides smaller in "
        f"{100 * np.mean([row['ruled_by'] == 'sides' for row in rows]):.0f} %), then {ratio:.2f} × W₂ in the median; "
        f"with Λ alone the median token keeps its side at t = 0 in {100 * theory:.0f} %; "
        f"W₂ itself stays above {FROZEN} of its start in {100 * frozen:.0f} %; "
        f"cost {cost:.2f} × the run in the median"
    )


def main() -> None:
    """Certify every problem and print a line per dimension."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 3, 4, 5, 6])
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    if options.out is not None and options.out.exists():
        rows = [json.loads(line) for line in options.out.read_text().splitlines()]
    known = {(row["d"], row["number"]) for row in rows}
    todo = [(d, k) for k in range(options.problems) for d in options.dimensions if (d, k) not in known]
    for d, number in track(todo, description="certifying"):
        rows.append(certify(d, number, options.tokens))
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    for d in options.dimensions:
        here = [row for row in rows if row["d"] == d]
        if here:
            print(summary(here))


if __name__ == "__main__":
    main()
