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


def test_tails_of_the_normal_distribution():
    x = dt.tensor([-40.0, -5.0, 0.0, 3.0], dtype=dt.float64)
    want = [-804.608442013754, -15.0649983939887, -math.log(2), -0.00135080996474819]
    assert S.log_ndtr(x).tolist() == pytest.approx(want, rel=1e-12)
    p = dt.tensor([1e-300, 1e-20, 0.1, 0.5, 0.9], dtype=dt.float64)
    assert S.log_ndtr(S.ndtri(p)).exp().tolist() == pytest.approx(p.tolist(), rel=1e-10)
    assert S.ndtri(dt.tensor([0.0, 1.0, -1.0])).tolist()[:2] == [-math.inf, math.inf]
    assert S.erfcx(dt.tensor([0.0, 100.0], dtype=dt.float64)).tolist() == pytest.approx(
        [1.0, 0.005641613782989433]
    )


def test_sums_over_powers():
    found = S.zeta(dt.tensor([2.0, 4.0, 1.0, 0.5, 2.0]), dt.tensor([1.0, 1.0, 2.0, 2.0, -0.5]))
    assert found[:3].tolist() == pytest.approx([math.pi**2 / 6, math.pi**4 / 90, math.inf])
    assert found[3].isnan().item() and found[4].item() == pytest.approx(8.934802200544679)
    given = dt.tensor([2.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="zeta"):
        S.zeta(given, dt.tensor([1.0])).sum().backward()


def test_where_logarithms_meet_nothing():
    x = dt.tensor([0.0, 0.0, 2.0, math.nan], dtype=dt.float64)
    y = dt.tensor([-1.0, math.nan, 3.0, 1.0], dtype=dt.float64)
    found = S.xlog1py(x, y).tolist()
    assert found[0] == 0 and math.isnan(found[1]) and math.isnan(found[3])
    assert found[2] == pytest.approx(2 * math.log(4))
    assert S.entr(dt.tensor([0.0, 1.0, -1.0])).tolist() == [0, 0, -math.inf]
    assert S.xlog1py(2, dt.tensor([3.0])).item() == pytest.approx(2 * math.log(4))
