"""Findings of an encoder whose layers share their weights (ALBERT): a head is one head, however often it is passed."""

import dataclasses
from collections.abc import Sequence

from frostline.auditing.findings import Finding


def once(findings: Sequence[Finding], passes: int) -> list[Finding]:
    """Findings of one kind about one head (or about the whole layer) as one: the strongest, with its passes."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for one in findings:
        # What is about the depth itself, and not about weights that are shared, stays as it is.
        alone = one.head is None and one.kind != "value bottleneck"
        key = (one.kind, one.head, one.layer) if alone else (one.kind, one.head)
        groups.setdefault(key, []).append(one)
    return [group[0] if len(key) == 3 else _merged(group, passes) for key, group in groups.items()]


def _merged(group: Sequence[Finding], passes: int) -> Finding:
    most = max(group, key=lambda one: one.effect)
    who = "the shared layer" if most.head is None else f"head {most.head}, shared by {passes} passes"
    layers = sorted(one.layer for one in group)
    every = "in all of them" if most.head is not None else f"in all {passes} passes"
    return dataclasses.replace(most, where=f"{who}; {every if len(layers) == passes else f'in pass {_ranges(layers)}'}")


def _ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 5 as "1 to 3, 5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in runs)
