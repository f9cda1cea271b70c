"""Every tolerance of the tests in one place, each with its reason."""

ROUNDING = 1e-12
"""A few hundred float64 operations on numbers of order one."""

ON_SPHERE = 1e-12
"""What the simulator promises for |x| − 1 in float64."""

ZERO_TEMPERATURE = 1e-9
"""What zero_temperature promises against an ODE solver at rtol 1e-13 (measured: below 3e-13)."""

ORDER = 0.15
"""How far a regressed convergence order may be from the stated one."""

FLOAT32_LOW_D = 1e-5
"""Mean map in float32 against float64 at β = 1e5, d ≤ 4 (measured: 5e-8)."""

FLOAT32_MIDDLE_D = 1e-4
"""The same for d ≤ 8 (measured: 5e-8)."""

SAME_TEXT = 1e-3
"""Scores of a text in batches of different padding, in float32 (measured: 2e-5; scores are of size 1 to 10)."""

FLOAT32_ANSWER = 1e-7
"""Entries up to 1 that were right when they were rounded to float32 (6e-8)."""

FLOAT32_STATES = 1e-5
"""Shares of energy of a tiny model's hidden states, which float32 passes of other padding give."""
