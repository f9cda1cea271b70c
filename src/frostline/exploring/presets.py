"""Presets of the explorer: one for each claim that d = 2 or 3 can show, and surprising cases."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A setting worth seeing.

    watch    a sentence that says what to look for
    setting  values other than the defaults, as in the address bar
    claim    the claim of ``frostline reproduce`` that measures it, if there is one
    """

    name: str
    title: str
    watch: str
    setting: str = ""
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
        "logarithmic axis W soon falls along a straight line: exponentially.",
        "beta=3000&d=2&B=1,0.5,0.2&n=4000&tokens=nodes&mean=0.6,0.8,0&concentration=0.6",
        "zero-temperature-limit",
    ),
    Preset(
        "laplace-principle",
        "Laplace principle",
        "Warm: tokens see a smeared-out neighbourhood, some take the wrong side, and W stops falling at a level of its "
        "own: 0.31. Make it colder: 0.16 at β = 30, 0.09 at β = 100.",
        "d=2&beta=10&n=4000&tokens=nodes&mean=0.6,0.8,0&concentration=0.6&until=16",
        "laplace-principle",
    ),
    Preset(
        "theorem",
        "The theorem",
        "W stays below the dotted bound of eq. 11. One of its terms falls, the other grows: it says something for a "
        "while (0.67 at t = 5.0) and nothing later, though tokens go on to concentrate.",
        "d=2&beta=100000&V=1,1.5,1&n=10000&tokens=nodes&mean=0.6,0.8,0&concentration=0.6&until=18",
        "theorem",
    ),
    Preset(
        "time-scale",
        "Time of order log β",
        "The colder, the longer it takes until W is smallest, but only like log β: t = 5.6, 10 and 15 at β = 30, 300 "
        "and 3,000.",
        "d=2&beta=300&V=1,1.5,1&n=4000&tokens=nodes&mean=0.6,0.8,0&concentration=0.6&until=24",
        "time-scale",
    ),
    Preset(
        "metastability",
        "Metastable",
        "Concentration, a long plateau, and then the clusters leave although nothing pushed them: V prefers another "
        "direction.",
        "d=2&beta=300&V=1,1.2,1&n=4000&tokens=nodes&mean=1,0.01,0&concentration=0.36&until=60",
        "metastability",
    ),
    Preset(
        "terminal-phase",
        "Terminal flip",
        "The two clusters form where A = VBᵀ says, stay for a while, and then move as wholes to where V says.",
        "V=1,0.2,1.3&until=30&beta=100&tokens=vmf&mean=1,0.2,0.02&concentration=1",
        "terminal-phase",
    ),
    Preset(
        "subspaces",
        "A circle, not points",
        "Two equal leading eigenvalues: tokens fall onto a great circle and stay about where they meet it. Warmer or "
        "with fewer tokens (β = 100, n = 2,000, until = 12) they clump along it.",
        "B=1,1,0.3&until=8&n=10000&beta=1000",
        "subspaces",
    ),
    Preset(
        "stability",
        "Two samples, one limit",
        "Change the seed: another sample of the same distribution takes another way in detail, and ends in the same "
        "two clusters with almost the same shares.",
        "n=4000&beta=300&tokens=vmf&mean=0.6,0.8,0&concentration=1",
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
        "Too cold for so few tokens: each sees its nearest few only. They gather in a dozen small groups and stop "
        "there, far from the rings. Raise n, or lower β, and they go on.",
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
        "n=1000&B2=0.3,0.6,0.2&until=12",
        "many-heads",
    ),
    Preset(
        "rotation",
        "Rotation",
        "A complex leading pair: no limit. Tokens gather in a plane and go round in it, until the plane as a whole "
        "tips over: slowly at first, e-fold in about 8.",
        "B=1,1,0.1&Bturn=0,0,30&until=60&beta=30",
    ),
    Preset(
        "defective",
        "Defective",
        "One eigenvalue without enough eigenvectors: tokens get there slowly, like 1/t and not exponentially, until "
        "the temperature stops them (W = 0.13).",
        "d=2&B=1,0;1,1&until=40&n=4000&beta=3000&tokens=nodes&concentration=0",
    ),
    Preset(
        "repelling",
        "Attention to the antipode",
        "Negative B and V: each token looks at the opposite side and is pushed away from it: two clusters "
        "all the same.",
        "B=-1,-0.5,-0.2&V=-1,-1,-1&until=20",
    ),
)
