"""A figure of a paper, from its runs to its file: how long tokens stay near their predicted limit, over n and β.

    python examples/phase_diagram.py OUT --seeds 5

Runs are kept in OUT: with more seeds, or after Ctrl-C, only the missing ones are made.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import frostline as fl

BETAS = [10.0, 30.0, 100.0, 300.0]
TOKENS = [100, 200, 400]


def runs_of(seeds: int) -> dict[str, object]:
    """The runs, as the TOML file of `frostline sweep` would have them."""
    start = {"count": 100, "distribution": "vmf", "mean": [1.0, 0.3], "concentration": 0.5}
    # V prefers the second direction a little, so in the end tokens leave the limit that VBᵀ predicts.
    spec = {"dimension": 2, "B": [1.0, 0.5], "V": [1.0, 1.1], "until": 30.0, "step": 0.1, "tokens": start}
    return {"command": "simulate", "spec": spec, "axes": {"beta": BETAS, "tokens": TOKENS, "seed": f"0..{seeds - 1}"}}


def main(out: Path, seeds: int) -> None:
    rows = fl.sweep(runs_of(seeds), out=str(out / "runs")).table.to_pylist()
    lasted = np.full((len(TOKENS), len(BETAS), seeds), np.nan)
    for row in rows:
        if row["plateau"] is not None:
            lasted[TOKENS.index(row["tokens"]), BETAS.index(row["beta"]), row["seed"]] = row["plateau"]
    seen = np.isfinite(lasted).sum(-1)
    middle = np.ma.median(np.ma.masked_invalid(lasted), axis=-1)

    figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
    image = axes.imshow(middle, origin="lower", aspect="auto")
    axes.set(xticks=range(len(BETAS)), xticklabels=[f"{beta:g}" for beta in BETAS], xlabel="β")
    axes.set(yticks=range(len(TOKENS)), yticklabels=TOKENS, ylabel="tokens")
    for (row, column), count in np.ndenumerate(seen):
        # Some runs have no plateau: a median hides how many.
        axes.annotate(f"{count}/{seeds}", (column, row), ha="center", va="center", color="white")
    figure.colorbar(image, label="length of the plateau, median")
    fl.plot.save(figure, out / "figure")
    np.savetxt(
        out / "figure.csv", middle.filled(np.nan), delimiter=",", header=f"rows: n = {TOKENS}; columns: β = {BETAS}"
    )
    print(f"Look at {out / 'figure.png'}; the numbers are in {out / 'figure.csv'}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    main(**vars(parser.parse_args()))
