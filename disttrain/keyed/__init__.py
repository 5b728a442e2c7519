"""``dt.keyed``: random numbers as functions of keys, with no generator behind them.

    key = dt.keyed.seed(0)
    key, new = dt.keyed.split(key)
    x = dt.keyed.normal(new, (3, 4), np.float32)

A key is data: a tensor of the type ``dt.key``, that is captured, mapped, sent and saved as others
are. What is drawn with one is the same on every machine and in every order of calls, and under
``vmap`` each example draws with its own. The bits are JAX's.
"""

from .choices import categorical, choice, order, permutation
from .continuous import (
    ball,
    beta,
    cauchy,
    chisquare,
    dirichlet,
    double_sided_maxwell,
    exponential,
    fisher,
    gamma,
    generalized_normal,
    gumbel,
    laplace,
    log_gamma,
    logistic,
    lognormal,
    maxwell,
    multivariate_normal,
    normal,
    orthogonal,
    pareto,
    rayleigh,
    student,
    triangular,
    truncated_normal,
    uniform,
    wald,
    weibull,
)
from .keys import (
    as_partitionable,
    common_shape,
    data,
    fold_in,
    of_data,
    partitionable,
    seed,
    split,
    use_partitionable,
)
from .whole import (
    bernoulli,
    binomial,
    bits,
    geometric,
    integers,
    multinomial,
    poisson,
    rademacher,
)
