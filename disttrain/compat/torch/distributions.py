"""``torch.distributions``: loaded when the first name is asked for."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import disttrain as dt

from ..publish import Shim

ROOT = "torch.distributions"
# Modules of one class that is also in the package, by the place of the class.
_PLACES = {
    "bernoulli": "Bernoulli", "beta": "Beta", "binomial": "Binomial", "categorical": "Categorical",
    "cauchy": "Cauchy", "chi2": "Chi2", "continuous_bernoulli": "ContinuousBernoulli",
    "dirichlet": "Dirichlet", "distribution": "Distribution", "exp_family": "ExponentialFamily",
    "exponential": "Exponential", "fishersnedecor": "FisherSnedecor", "gamma": "Gamma",
    "generalized_pareto": "GeneralizedPareto", "geometric": "Geometric", "gumbel": "Gumbel",
    "half_cauchy": "HalfCauchy", "half_normal": "HalfNormal", "independent": "Independent",
    "inverse_gamma": "InverseGamma", "kumaraswamy": "Kumaraswamy", "laplace": "Laplace",
    "lkj_cholesky": "LKJCholesky", "log_normal": "LogNormal", "logistic_normal": "LogisticNormal",
    "lowrank_multivariate_normal": "LowRankMultivariateNormal",
    "mixture_same_family": "MixtureSameFamily", "multinomial": "Multinomial",
    "multivariate_normal": "MultivariateNormal", "negative_binomial": "NegativeBinomial",
    "normal": "Normal", "pareto": "Pareto", "poisson": "Poisson", "studentT": "StudentT",
    "transformed_distribution": "TransformedDistribution", "uniform": "Uniform",
    "von_mises": "VonMises", "weibull": "Weibull", "wishart": "Wishart",
}  # fmt: skip
# Modules of ours that stand under a place of theirs: place -> (module, names; None: all).
_MODULES: dict[str, tuple[str, list[str] | None]] = {
    "constraint_registry": ("constraint_registry", None),
    "constraints": ("constraints", None),
    "kl": ("kl", None),
    "one_hot_categorical": ("discrete", ["OneHotCategorical", "OneHotCategoricalStraightThrough"]),
    "relaxed_bernoulli": ("relaxed", ["LogitRelaxedBernoulli", "RelaxedBernoulli"]),
    "relaxed_categorical": ("relaxed", ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]),
    "transforms": ("transforms", None),
    "utils": ("parameters", None),
}


def modules() -> dict[str, Shim]:
    """``torch.distributions`` and its modules."""
    return {
        ROOT: Shim(ROOT).later(_whole),
        **{
            f"{ROOT}.{place}": Shim(f"{ROOT}.{place}").later(functools.partial(_module, *source))
            for place, source in _MODULES.items()
        },
        **{
            f"{ROOT}.{place}": Shim(f"{ROOT}.{place}").later(functools.partial(_one, kind))
            for place, kind in _PLACES.items()
        },
    }


def _whole(shim: Shim) -> None:
    names = [n for n in dt.distributions.__all__ if n not in _MODULES]
    shim.take(dt.distributions, names)


def _module(module: str, names: list[str] | None, shim: Shim) -> None:
    source = importlib.import_module(f"disttrain.distributions.{module}")
    chosen = source.__all__ if names is None else names
    shim.take(source, chosen).give(__all__=list(chosen))
    if module == "transforms":
        within = importlib.import_module("disttrain.distributions.transforms.transform")
        shim.give(_InverseTransform=within._InverseTransform)
    if module == "parameters":
        shim.give(_sum_rightmost=source.sum_rightmost, _standard_normal=_standard_normal)


def _standard_normal(shape: tuple, dtype: Any, device: Any) -> Any:
    """Numbers of the normal distribution of mean 0 and variance 1."""
    return dt.randn(shape, dtype=dtype, device=device)


def _one(kind: str, shim: Shim) -> None:
    shim.take(dt.distributions, [kind])
