"""Probability distributions: samples, log-probabilities, entropies. PyTorch's names and meaning.

A file for each kind of distribution, over ``distribution`` (what all have in common),
``parameters`` and ``constraints`` (sets of values); ``transforms`` has maps between such sets,
which ``constraint_registry`` finds, and ``kl`` the divergences.
"""

from . import constraints, transforms
from .constraint_registry import biject_to, transform_to
from .counts import Binomial, Multinomial, NegativeBinomial, Poisson
from .discrete import (
    Bernoulli,
    Categorical,
    ContinuousBernoulli,
    Geometric,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .gamma import Beta, Chi2, Dirichlet, FisherSnedecor, Gamma, InverseGamma, StudentT
from .independent import Independent
from .kl import kl_divergence, register_kl
from .location_scale import Cauchy, Gumbel, HalfCauchy, Laplace, VonMises
from .matrices import LKJCholesky, Wishart
from .mixture import MixtureSameFamily
from .multivariate_normal import LowRankMultivariateNormal, MultivariateNormal
from .normal import HalfNormal, LogisticNormal, LogNormal, Normal
from .positive import Exponential, GeneralizedPareto, Kumaraswamy, Pareto, Uniform, Weibull
from .relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from .transformed import TransformedDistribution
from .transforms import *

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli",
    "Dirichlet", "Distribution", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma",
    "GeneralizedPareto", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent",
    "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal",
    "LowRankMultivariateNormal", "MixtureSameFamily", "Multinomial", "MultivariateNormal",
    "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough",
    "Pareto", "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT",
    "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart", "biject_to",
    "constraints", "kl_divergence", "register_kl", "transform_to", "transforms",
]  # fmt: skip
__all__ += transforms.__all__
