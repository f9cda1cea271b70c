"""Findings of an encoder whose layers share their weights (ALBERT): a head that is passed often is still one head."""

import dataclasses
from collections.abc import Sequence

from frostline.auditing.findings import Finding


def once(findings: Sequence[Finding], passes: int) -> list[Finding]:
    """Findings of one kind about one head (or about the whole layer) as one: the strongest, with its passes."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        # A finding about depth, and not about weights that are shared, stays as it is.
        of_depth = finding.head is None and finding.kind != "value bottleneck"
        key = (finding.kind, finding.head, finding.layer) if of_depth else (finding.kind, finding.head)
        groups.setdefault(key, []).append(finding)
    return [group[0] if len(key) == 3 else _merged(group, passes) for key, group in groups.items()]


def _merged(group: Sequence[Finding], passes: int) -> Finding:
    strongest = max(group, key=lambda finding: finding.effect)
    shared = strongest.head is not None
    who = f"head {strongest.head}, shared by {passes} passes" if shared else "the shared layer"
    every = "in all of them" if shared else f"in all {passes} passes"
    layers = sorted(finding.layer for finding in group)
    which = every if len(layers) == passes else f"in pass {_ranges(layers)}"
    return dataclasses.replace(strongest, where=f"{who}; {which}")


def _ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 5 as "1 to 3, 5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in runs)
