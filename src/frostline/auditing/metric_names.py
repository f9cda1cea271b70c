"""Names of the single numbers of an audit, for whoever names them before anything is computed: no torch is loaded."""

WEIGHT_METRICS = (
    "layers",
    "beta_median",
    "beta_max",
    "rotating_share",
    "asymmetry_median",
    "symmetry_score_median",
    "value_rank_smallest_share",
    "findings",
    "bottlenecks",
)
"""Numbers that the weights alone give."""
TEXT_METRICS = (
    "explained_bridge_smallest",
    "explained_bridge_median",
    "explained_neighbours_median",
    "explained_token_median",
    "resultant_error_largest",
    "kappa_median",
    "perplexity_median",
    "fidelity_full_median",
    "fidelity_argmax_median",
    "fidelity_argmax_random",
    "step_median",
    "cosine_first",
    "cosine_last",
    "frost_line",
)
"""Numbers that need texts."""
CHANGE_METRICS = ("random_growth", "worst_growth")
"""Numbers that need texts and perturbations of them."""
