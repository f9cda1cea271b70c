"""The list of leaves and proxies that a group of queries sums, collected by descending the tree of boxes.

A box is left out where its weight is too small to matter, replaced by proxies where they are right enough, and opened
otherwise. Both errors are bounded before they are made, and their sum stays below the tolerance.
"""

from typing import no_type_check

import numpy as np
from numba import prange

from frostline.compiled import njit
from frostline.dynamics.mean_map.boxes import HALF
from frostline.dynamics.mean_map.groups import STACK, apart, largest, seen_from
from frostline.dynamics.mean_map.pairs import LEAST, exponential

_LOG2 = float(np.log(2.0))
"""log 2."""


@njit()
@no_type_check
def _order(group, box, away, across, allowed, boxes, proxies, table):
    """The smallest order of proxies that may stand for a box, and the bound of their error; −1 if there is none."""
    level, smallest, lost = boxes.level[box], -1, 0.0
    most = len(proxies.first) - 1
    while most >= 0 and proxies.first[most, box] < 0:
        most -= 1
    for turn in range(most + 1):
        # The largest first: where it will not do, none will.
        order = most - turn
        wrong = np.inf
        best = table.best[order] * 2.0**level / HALF / np.sqrt(group.kappa + group.spread + 1)
        r = 0
        while r < len(table.ratios) - 2 and table.ratios[r + 1] < best and table.error[order, level, r + 1] < np.inf:
            r += 1
        for at in range(max(0, r - 1), r + 2):
            error = -np.inf
            # The highest arc first: it is often enough to see that this will not do.
            for arc in range(table.reach.shape[2] - 1, -1, -1):
                wide = table.reach[level, at, arc]
                grown = (group.kappa + group.spread) * table.growth[level, at, arc]
                error = max(error, table.error[order, level, at] + grown + largest(group, away - wide, across + wide))
                if error > allowed:
                    break
            wrong = min(wrong, error)
        if wrong > allowed:
            break
        smallest, lost = order, boxes.mass[box] * exponential(max(wrong, LEAST))
    return smallest, lost


@njit()
@no_type_check
def _listed(group, boxes, proxies, table, budget, share, stack, items):
    """Fill ``items`` with leaves (their number) and blocks of proxies (−1 − their number) for a group of queries.

    Returns the number of items, the bound of the loss, the largest chord from y*, and the number of boxes examined.
    Each box that is left out or replaced may lose ``share`` of the budget times its mass, or times 1/16 if that is
    more.
    """
    top, count, lost, widest, seen = 0, 0, 0.0, 0.0, 0
    stack[0] = 0
    rest = np.log(budget * share)
    while top >= 0:
        box = stack[top]
        top -= 1
        seen += 1
        if box:
            away, across = apart(group.u, boxes.centre[box]), apart(group.star, boxes.centre[box])
            size = boxes.radius[box]
            # Per unit of mass, in logarithms.
            allowed = rest + boxes.excess[box]
            # The mean is a quotient: what is missing is missing above and below.
            gone = _LOG2 + largest(group, away - size, across + size)
            if gone <= allowed:
                lost += boxes.mass[box] * exponential(max(gone, LEAST))
                continue
            order, wrong = _order(group, box, away, across, allowed, boxes, proxies, table)
            if order >= 0:
                lost += wrong
                begin = proxies.first[order, box]
                allowed += np.log(boxes.mass[box] / proxies.blocks[order])
                for block in range(begin, begin + proxies.blocks[order]):
                    away = apart(group.u, proxies.centre[block]) - proxies.radius[block]
                    across = apart(group.star, proxies.centre[block]) + proxies.radius[block]
                    gone = proxies.size[block] + largest(group, away, across)
                    if gone <= allowed:
                        lost += exponential(max(gone, LEAST))
                    else:
                        items[count] = -1 - block
                        count += 1
                        widest = max(widest, across)
                continue
            if not boxes.children[box]:
                items[count] = box
                count += 1
                widest = max(widest, across + size)
                continue
        for number in range(boxes.children[box]):
            top += 1
            stack[top] = boxes.child[box] + number
    return count, lost, widest, seen


@njit()
@no_type_check
def within(group, boxes, proxies, table, tolerance, stack, items):
    """``_listed`` with a loss below the tolerance: the number of items, the largest chord from y*, boxes examined."""
    share, lost, count, widest, seen = 0.5, 2 * tolerance, 0, 0.0, 0
    while lost > tolerance:
        count, lost, widest, more = _listed(group, boxes, proxies, table, tolerance, share, stack, items)
        seen += more
        share /= 8
    return count, widest, seen


@njit(parallel=True)
@no_type_check
def counted(some, groups, boxes, proxies, table, tolerance):
    """The number of sources and proxies that some groups sum, and of boxes that are examined for them."""
    counts, seen = np.zeros(len(some), np.int64), np.zeros(len(some), np.int64)
    for at in prange(len(some)):
        stack, items = np.empty(STACK, np.int64), np.empty(len(boxes.start) + len(proxies.size), np.int64)
        group = seen_from(groups.middle[some[at]], groups.radius[some[at]], boxes, stack)
        count, _, seen[at] = within(group, boxes, proxies, table, tolerance, stack, items)
        for item in range(count):
            number = items[item]
            if number < 0:
                counts[at] += proxies.start[-number] - proxies.start[-1 - number]
            else:
                counts[at] += boxes.stop[number] - boxes.start[number]
    return counts, seen
