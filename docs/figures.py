"""make figures: the pictures of docs/ that no demo makes."""

from pathlib import Path

import numpy as np

import frostline as fl

cold = fl.Attention.from_matrices(B=np.diag([1.0, 0.5]), V=np.eye(2), beta=1000.0)
nodes = fl.sample.nodes(1000, 2)
run = fl.simulate(cold, nodes.tokens, weights=nodes.weights, until=20.0, save_at=np.linspace(0, 20, 41))
axes = fl.plot.distance(run, phases=fl.phases(run), certificate=fl.certificate(run), bound=fl.bound(cold))
axes.figure.savefig(Path(__file__).parent / "images" / "certificate.png", dpi=110, metadata={"Software": None})
