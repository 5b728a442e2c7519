"""Distributions to try what all of them have in common with: parameters as nested lists, for our
module or PyTorch's."""

from __future__ import annotations

from typing import Any

_SPD = [[2.0, 0.3], [0.3, 0.5]]
_TRIL = [[1.5, 0.0], [-0.4, 0.7]]
_PROBS = [[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]
# (class, parameters); ints and strings stay as they are
CASES: list[tuple[str, dict[str, Any]]] = [
    ("Bernoulli", {"probs": [0.7, 0.2, 0.5]}),
    ("Bernoulli", {"logits": [-0.7, 2.0]}),
    ("Beta", {"concentration1": [0.5, 2.0, 3.0], "concentration0": [0.7, 3.0, 1.5]}),
    ("Binomial", {"total_count": 5, "probs": [0.3, 0.6]}),
    ("Binomial", {"total_count": [4.0, 4.0], "logits": [0.3, -0.6]}),
    ("Categorical", {"probs": _PROBS}),
    ("Categorical", {"logits": [0.1, -0.4, 1.0]}),
    ("Cauchy", {"loc": [0.5, -1.0], "scale": [1.0, 2.0]}),
    ("Chi2", {"df": [0.5, 3.0]}),
    ("ContinuousBernoulli", {"probs": [0.2, 0.4999, 0.9]}),
    ("ContinuousBernoulli", {"logits": [0.3, -2.0]}),
    ("Dirichlet", {"concentration": [[0.5, 1.5, 2.5], [3.0, 1.0, 2.0]]}),
    ("Exponential", {"rate": [0.5, 2.0]}),
    ("FisherSnedecor", {"df1": [3.0, 1.5], "df2": [5.0, 7.0]}),
    ("Gamma", {"concentration": [0.5, 3.0], "rate": [2.0, 0.7]}),
    ("GeneralizedPareto", {"loc": [0.0, 1.0, 2.0], "scale": [1.0, 2.0, 1.0],
                           "concentration": [0.3, 0.0, -0.4]}),
    ("Geometric", {"probs": [0.3, 0.8]}),
    ("Geometric", {"logits": [0.3, -0.8]}),
    ("Gumbel", {"loc": [0.5, -1.0], "scale": [1.0, 2.0]}),
    ("HalfCauchy", {"scale": [1.0, 2.0]}),
    ("HalfNormal", {"scale": [1.0, 2.0]}),
    ("InverseGamma", {"concentration": [3.0, 2.5], "rate": [2.0, 0.7]}),
    ("Kumaraswamy", {"concentration1": [1.5, 2.0], "concentration0": [1.2, 3.0]}),
    ("LKJCholesky", {"dim": 3, "concentration": [0.5, 2.0]}),
    ("Laplace", {"loc": [0.5, -1.0], "scale": [1.0, 2.0]}),
    ("LogNormal", {"loc": [0.5, -1.0], "scale": [0.5, 1.0]}),
    ("LogisticNormal", {"loc": [0.5, -1.0], "scale": [0.5, 1.0]}),
    ("LowRankMultivariateNormal", {"loc": [[0.1, 0.2], [0.3, -0.4]], "cov_factor": [[1.0], [0.5]],
                                   "cov_diag": [0.5, 0.3]}),
    ("Multinomial", {"total_count": 6, "probs": _PROBS}),
    ("MultivariateNormal", {"loc": [[0.1, 0.2], [0.3, -0.4]], "covariance_matrix": _SPD}),
    ("MultivariateNormal", {"loc": [0.1, 0.2], "precision_matrix": _SPD}),
    ("MultivariateNormal", {"loc": [0.1, 0.2], "scale_tril": _TRIL}),
    ("NegativeBinomial", {"total_count": [3.0, 2.5], "probs": [0.3, 0.6]}),
    ("Normal", {"loc": [0.5, -1.0], "scale": [1.0, 2.0]}),
    ("OneHotCategorical", {"probs": _PROBS}),
    ("OneHotCategoricalStraightThrough", {"logits": _PROBS}),
    ("Pareto", {"scale": [1.0, 2.0], "alpha": [3.0, 2.5]}),
    ("Poisson", {"rate": [0.5, 4.0]}),
    ("RelaxedBernoulli", {"temperature": [0.7], "probs": [0.3, 0.6]}),
    ("RelaxedOneHotCategorical", {"temperature": [0.7], "probs": _PROBS}),
    ("StudentT", {"df": [3.0, 2.5], "loc": [0.5, 0.0], "scale": [1.0, 2.0]}),
    ("Uniform", {"low": [0.0, -1.0], "high": [1.0, 3.0]}),
    ("VonMises", {"loc": [0.5, -1.0], "concentration": [1.0, 4.0]}),
    ("Weibull", {"scale": [1.0, 2.0], "concentration": [1.5, 2.5]}),
    ("Wishart", {"df": [3.0, 4.0], "covariance_matrix": _SPD}),
    ("Wishart", {"df": [3.0, 4.0], "scale_tril": _TRIL}),
]  # fmt: skip
IDS = [f"{name}-{'-'.join(params)}" for name, params in CASES]


def made(module: Any, name: str, params: dict[str, Any], grad: bool = False) -> tuple[Any, list]:
    """The distribution from ``module`` (ours or PyTorch), and its parameters as float64 tensors."""
    leaves, given = [], {}
    for key, value in params.items():
        if isinstance(value, list):
            value = module.tensor(value, dtype=module.float64, requires_grad=grad)
            leaves.append(value)
        given[key] = value
    return getattr(module.distributions, name)(**given), leaves
