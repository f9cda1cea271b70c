"""Every tolerance of the tests in one place, each with its reason."""

ROUNDING = 1e-12
"""A few hundred float64 operations on numbers of order one."""

ON_SPHERE = 1e-12
"""The simulator's promise for |x| − 1 in float64."""

ZERO_TEMPERATURE = 1e-9
"""The promise of zero_temperature against an ODE solver at rtol 1e-13 (measured: below 3e-13)."""

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

SPECTRUM = 1e-10
"""Eigenvalues, gaps and projectors of matrices whose condition is some hundreds."""

LARGE_LOGITS = 1e-10
"""Mean maps in float64 whose logits, some hundreds, are rounded in another order."""

MEAN_MAP = 1e-8
"""The tolerance that mean_map promises by default."""

EXACT_DISTANCE = 1e-9
"""W_p by exact methods that add the same masses and costs in another order."""

P_VALUE = 0.011
"""Two places among the 180 texts that calibrate the small baseline: scores of a text move by SAME_TEXT."""

FLOAT32_PASS = 1e-4
"""Hidden states of size up to ten that float32 passes of the same model give in another order of sums."""

SLOPE = 0.03
"""Exponents fitted over one to two decades, where the next term still bends the line."""

SIGHT = 1e-5
"""What a token sees, from a float32 pass of the model against one in float64; shares and places are of order one."""

HALF = 2.0**-11
"""Relative rounding of a 16-bit float; numbers below its normal ones (6e-5) lose digits."""

TABLE = 5e-3
"""Participation of a finite cloud, interpolated in its table, relative (measured: 2.3e-3 at N = 10⁶, σ = .7 σ_N)."""

DEVIATIONS = 5.0
"""Standard deviations of a sampled mean of bounded or light-tailed draws: one false failure in a million tests."""

FREEZING = 0.25
"""Logarithms of masses of frozen clouds of 10⁵ tokens by the law of their extremes: the next term is of order
1/ln N = 0.09, times the few standard deviations that the largest of them are off by."""

ESTIMATE = 1.7
"""Root mean squares of errors of the closure and of their estimates, over clouds: a factor (measured: 0.81 to 1.49)."""

FLOW_ERROR = 3.0
"""Errors of moment_flow over their estimate (measured against 10⁵ tokens: at most 2.1, median .5, 180 comparisons)."""
