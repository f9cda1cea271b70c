"""The page of a reproduction, made from results that are already on disk."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w
from markupsafe import Markup

from frostline.files.plain_json import plain
from frostline.files.toml_tables import without_nulls
from frostline.report.html import inlined, render

KINDS = ("claim", "software")
"""Checks of a claim, and those of the software, which are shown apart."""
SYMBOLS = {
    "β": "inverse temperature: the larger, the colder and the sharper the attention",
    "B, V, A": "B = QᵀK and the value matrix of a head; A = VBᵀ decides the limit",
    "ρ_t, ρ₀": "the tokens as a distribution on the sphere, at depth t and at the start",
    "Π, Π♯ρ₀": "projection onto the leading eigenspace of A, back on the sphere; where it takes the start: the limit",
    "𝒫": "the same projection without going back to the sphere",
    "W, W_p": "Wasserstein distance: how far mass must be moved, in the mean (p = 1) or root mean square (p = 2)",
    "a": "√(log(β+1)/β), the size of the theorem's first term",
    "α": "asymmetry of a start: mean of x₂ on one side (the a of eq. 13)",
    "p": "the power in W_p; that of the paper's theorem is not known",
    "M, C, c": "the theorem's constants: size, growth of the first term, decay of the second",
    "γ": "how fast a run leaves the zero-temperature path of its start, before the hand-over",
    "τ": "each token's own clock: t in units in which zero temperature is linear, e^{τA}",
    "g, g_A": "gap: how far A's leading eigenvalue is ahead, in τ and in t",
    "g_V": "how fast V pulls tokens apart from the limit in the terminal phase",
    "κ, κ*_n": "β|Bᵀx|: how sharply one token looks; the value above which it sees about one of n others",
    "m_β, y*": "the mean a token sees, and the point it would see at zero temperature: Bᵀx/|Bᵀx|",
    "ℓ": "the largest rate at which the zero-temperature flow drives two tokens apart",
    "tilt": "a start's vector k: its density is proportional to e^{k·x}",
    "ψ, ξ": "a token's angle from e₂, and log tan(ψ/2), its place on a line; ξ₀: where it began",
    "range R": "tokens with |ξ₀| ≤ R are followed; those nearer to ±e₂ are left out",
    "kernel width": "κ^{−1/2}, the distance at which a token's attention falls off",
    "f": "the exponent of a held cluster, whose density is proportional to e^{βf} (THEORY section 9)",
    "Λ": "−log ∫ e^{−κ|y−y*|²/2} dρ(y) of a token: how little there is where it looks; Λ₀: the largest at the start",
    "Γ": "the largest rate at which the zero-temperature flow thins the density",
    "(H)": "−log min ρ ≤ Γt and largest Λ ≤ Λ₀ + Γt, up to a constant",
    "E, θ": "the leading eigenspace of A, and a token's angle to it",
    "λ": "an eigenvalue",
    "ρ̃": "a second distribution of tokens, which ρ is compared with",
    "s": "spread of a cluster (an angle); in Without symmetry: skewness of A",
    "t, n, d": "depth as time; number of tokens; dimension of the space",
    "m": "dimension of the leading eigenspace; in |m − y*|, the mean that a token sees",
}
"""Symbols of the page, and their meanings."""


def write_page(path: Path, claims: Sequence[Mapping[str, Any]], *, left: int = 0, hidden: Sequence[str] = ()) -> Path:
    """Write the page of these claims: results with ``figure`` (SVG), ``frames``, ``command``, ``folder``.

    ``left``: the number of claims that were asked for and are not finished; ``hidden``: names of claims in the folder
    whose results are of other code, or damaged.
    """
    verdicts = [claim["verdict"] for claim in claims]
    return render(
        path,
        "page.html",
        claims=[_claim(claim) for claim in claims],
        headline=verdicts_in_words(verdicts),
        symbols=SYMBOLS,
        left=left,
        hidden=hidden,
        settings=sorted({f"{claim['spec']['size']} size, seed {claim['spec']['seed']}" for claim in claims}),
        script=Markup((files("frostline.report") / "page.js").read_text(encoding="utf-8")),
    )


def verdicts_in_words(verdicts: Sequence[str]) -> str:
    """How many claims hold, fail or cannot be decided, as a sentence.

    >>> verdicts_in_words(["holds", "fails", "holds"])
    '3 claims of the theory, each measured: 2 hold, 1 fail.'
    """
    if not verdicts:
        return "Nothing is finished yet."
    counts = {name: verdicts.count(name) for name in ("holds", "fails", "undecided")}
    words = {"holds": "hold", "fails": "fail", "undecided": "cannot be decided at this size"}
    if len(verdicts) == 1:
        return f"One claim of the theory, measured: it {verdicts[0].replace('undecided', words['undecided'])}."
    parts = [f"{count} {words[name]}" for name, count in counts.items() if count]
    return f"{len(verdicts)} claims of the theory, each measured: {', '.join(parts)}."


def _claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    checks = claim["measured"]["checks"]
    kinds = {kind: [check for check in checks if check["software"] is (kind == "software")] for kind in KINDS}
    return {
        **claim,
        "checks": [(kind, rows) for kind, rows in kinds.items() if rows],
        "figure": Markup(inlined(claim["figure"], claim["name"], f"What was measured for: {claim['title']}")),
        "spec_toml": tomli_w.dumps(without_nulls(plain(claim["spec"]))),
        "numbers": sorted(rows_of_numbers(claim["measured"]["numbers"])),
    }


def rows_of_numbers(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Nested numbers as rows of a table; three in a list are a value and its interval if the value lies in it."""
    if isinstance(value, Mapping):
        return [row for key, item in value.items() for row in rows_of_numbers(item, f"{name} {key}".strip())]
    if isinstance(value, list) and all(isinstance(item, int | float) for item in value):
        if len(value) == 3 and value[1] <= value[0] <= value[2]:
            return [(name, f"{value[0]:.4g} (95 %: {value[1]:.4g} to {value[2]:.4g})")]
        return [(name, ", ".join(f"{item:.6g}" for item in value))]
    return [(name, f"{value:.6g}" if isinstance(value, float) else str(value))]
