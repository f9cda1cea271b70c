"""Figures as matplotlib axes: tokens on the sphere, distance over time."""

from frostline.plot.curves import distance
from frostline.plot.notebook import trajectory_html
from frostline.plot.style import BLUE, FAINT, INK, NOWHERE, ORANGE, as_svg, panels, save, shade, whole_ticks, x_ticks
from frostline.plot.tokens import tokens

__all__ = [
    "BLUE",
    "FAINT",
    "INK",
    "NOWHERE",
    "ORANGE",
    "as_svg",
    "distance",
    "panels",
    "save",
    "shade",
    "tokens",
    "trajectory_html",
    "whole_ticks",
    "x_ticks",
]
