"""Settings worth seeing: one for each claim that d = 2 or 3 can show, and the cases that surprise."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """``claim``: the name under which ``frostline reproduce`` measures it, if it does."""

    name: str
    title: str
    watch: str
    """What to look for."""
    setting: str = ""
    """What differs from the defaults, as in the address bar."""
    claim: str | None = None


PRESETS = (
    Preset(
        "first",
        "Tokens freeze",
        "2,000 tokens spread over the sphere gather in the two points that the matrices single out. The rings were "
        "predicted before anything moved.",
    ),
    Preset(
        "zero-temperature-limit",
        "Zero temperature",
        "Very cold: every token takes the path that the theory gives in closed form. On this "
        "logarithmic axis W falls along a straight line: exponentially.",
        "beta=3000&d=2&B=1,0.5,0.2&n=4000&tokens=nodes&mean=0.6,0.8,0&concentration=0.6",
        "zero-temperature-limit",
    ),
    Preset(
        "laplace-principle",
        "Laplace principle",
        "Warm: tokens see a smeared-out neighbourhood, so W stops falling at a level of its own. Move "
        "β: the level falls like 1/β, up to a logarithm.",
        "d=2&beta=10&n=1000&until=16",
        "laplace-principle",
    ),
    Preset(
        "theorem",
        "The theorem",
        "W first falls, then rises again: the two terms of eq. 11, and the dotted line is the bound, "
        "an order of magnitude.",
        "d=2&beta=30&V=1,1.5,1&n=2000&tokens=nodes&mean=0.6,0.8,0&concentration=0.6&until=30",
        "theorem",
    ),
    Preset(
        "time-scale",
        "Time of order log β",
        "The colder, the longer it takes until W is smallest, but only like log β: try β = 30, 300 and 3,000.",
        "d=2&beta=300&V=1,1.5,1&n=4000&tokens=nodes&mean=0.6,0.8,0&concentration=0.6&until=24",
        "time-scale",
    ),
    Preset(
        "metastability",
        "Metastable",
        "Concentration, a long plateau, and then the clusters leave although nothing pushed them: V prefers another "
        "direction.",
        "d=2&beta=300&V=1,1.5,1&n=4000&tokens=nodes&mean=1,0.04,0&concentration=0.36&until=40&step=0.1",
        "metastability",
    ),
    Preset(
        "terminal-phase",
        "Terminal flip",
        "The two clusters form where A = VBᵀ says, stay for a while, and then move as wholes to where V says.",
        "V=1,0.2,2&until=24&beta=100&tokens=vmf&mean=0.3,0.2,1&concentration=1",
        "terminal-phase",
    ),
    Preset(
        "subspaces",
        "A circle, not points",
        "Two equal leading eigenvalues: tokens fall onto a great circle and stop where they meet it.",
        "B=1,1,0.3&until=12",
        "subspaces",
    ),
    Preset(
        "stability",
        "Two starts, one limit",
        "Move the seed or the number of tokens: clouds that begin close to each other stay close to each other.",
        "n=1000&beta=30&tokens=vmf&mean=0.6,0.8,0&concentration=3",
        "stability",
    ),
    Preset(
        "mean-field",
        "Many tokens",
        "100,000 tokens: the curve no longer depends on the sample. One token in five is drawn.",
        "n=100000&d=3&beta=50&until=3&step=0.1",
        "mean-field",
    ),
    Preset(
        "finite-tokens",
        "Frozen by too few",
        "Too cold for so few tokens: each sees only itself and stays where it is. Raise n, or lower β, "
        "and they move again.",
        "n=100&beta=30000&until=12",
        "finite-tokens",
    ),
    Preset(
        "asymmetry",
        "No symmetry",
        "A is not symmetric, so the theorem does not apply; the limit is there all the same.",
        "Bturn=20,0,15",
        "asymmetry",
    ),
    Preset(
        "many-heads",
        "Two heads",
        "Their pulls add up, and the limit is not that of either head: it is worked out path by path.",
        "n=1000&B2=0.2,0.4,1&V2=0.5,0.5,1&until=12",
        "many-heads",
    ),
    Preset(
        "rotation",
        "Rotation",
        "A complex leading pair: no limit. Tokens gather in a plane and go round in it for ever.",
        "B=1,1,0.3&Bturn=0,0,60&until=20",
    ),
    Preset(
        "defective",
        "Defective",
        "One eigenvalue without enough eigenvectors: tokens get there, but only like 1/t.",
        "d=2&B=1,0;1,1&V=1,1,1&until=40&n=1000&beta=300",
    ),
    Preset(
        "repelling",
        "Attention to the antipode",
        "Negative B and V: each token looks at the opposite side and is pushed towards it; two clusters all the same.",
        "B=-1,-0.5,-0.2&V=-1,-0.6,-1.6&until=30",
    ),
)
