"""``dt.special``: its names, the functions that it alone has, and their derivatives."""

import math

import numpy as np
import pytest

import disttrain as dt

X = np.array([-37.0, -5.5, -1.0, -0.1, 0.0, 0.3, 2.0, 7.0])
S = dt.special


@pytest.mark.parametrize("name", S.__all__)
def test_a_name_computes_floating_numbers(name):
    second = {
        "gammainc": 2.0, "gammaincc": 2.0, "xlogy": 2.0, "xlog1py": 2.0, "zeta": 2.0,
        "multigammaln": 2, "logsumexp": 0, "softmax": 0, "log_softmax": 0,
        **dict.fromkeys((n for n in S.__all__ if "_polynomial_" in n), 2),
    }  # fmt: skip
    given = dt.tensor([1.2, 1.7])
    args = [given, *([second[name]] if name in second else [])]
    if name.startswith("gammainc"):
        args[1] = dt.tensor([2.0, 2.5])
    if name == "polygamma":
        args = [1, given]
    assert getattr(S, name)(*args).dtype is dt.float32


def test_the_area_under_the_normal_distribution():
    want = [0.5 * math.erfc(-x / math.sqrt(2)) for x in X]
    # The rounding of x / sqrt(2) counts x * x times.
    np.testing.assert_allclose(S.ndtr(dt.tensor(X)).numpy(), want, rtol=1e-12)
    assert S.ndtr(dt.tensor([1, 2])).dtype is dt.float32
    given = dt.tensor(X[1:]).requires_grad_()
    assert dt.autograd.gradcheck(S.ndtr, (given,)) and dt.autograd.gradgradcheck(S.ndtr, (given,))


@pytest.mark.parametrize("name", ["ndtr", "i1", "gammaln", "erfc"])
def test_results_into_what_is_given(name):
    given, out = dt.tensor([0.5, 1.5]), dt.empty(2)
    assert getattr(S, name)(given, out=out) is out
    np.testing.assert_array_equal(out.numpy(), getattr(S, name)(given).numpy())
