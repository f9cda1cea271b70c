"""The mean map m_β[ρ](x) (THEORY eq. 1): one interface, several engines."""

from frostline.dynamics.mean_map.base import choose, mean_map, token_velocity
from frostline.dynamics.mean_map.select import ENGINES

__all__ = ["ENGINES", "choose", "mean_map", "token_velocity"]
