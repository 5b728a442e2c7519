"""``jax.random`` of the face beside JAX's: bits, shapes, types, thousands of draws."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import disttrain.compat.jax.random as mine  # noqa: E402
from disttrain import keyed  # noqa: E402
from disttrain.compat.jax.types import X64  # noqa: E402
from disttrain.context import thread  # noqa: E402

pytestmark = pytest.mark.peer
theirs = jax.random
SHAPES = [(), (33, 5)]


@pytest.fixture(scope="module", params=[True, False], ids=["partitionable", "original"])
def way(request):
    with keyed.as_partitionable(request.param):
        with jax.threefry_partitionable(request.param):
            yield request.param


@pytest.fixture
def wide():
    thread.rank.slots[X64] = True
    with jax.enable_x64(True):
        yield
    thread.rank.slots[X64] = False


def both(name, seed, *args, typed=True, **kwargs):
    make = "key" if typed else "PRNGKey"
    want = getattr(theirs, name)(getattr(theirs, make)(seed), *args, **kwargs)
    got = getattr(mine, name)(getattr(mine, make)(seed), *args, **kwargs)
    return np.asarray(got), np.asarray(want)


def check(name, seed, *args, exact=False, rtol=1e-6, **kwargs):
    got, want = both(name, seed, *args, **kwargs)
    assert got.dtype == want.dtype, name
    assert got.shape == want.shape, name
    if exact:
        assert got.tobytes() == want.tobytes(), name
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    scale = max(1e-3, float(np.nanmedian(np.abs(want)))) if want.size else 1.0
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * scale, err_msg=name)


@pytest.mark.parametrize("seed", [0, 42, -1, 2**32 + 5])
def test_keys(seed, way):
    for name, args in [("split", ()), ("split", (7,)), ("split", ((2, 3),)), ("fold_in", (9,))]:
        want = getattr(theirs, name)(theirs.PRNGKey(seed), *args)
        got = getattr(mine, name)(mine.PRNGKey(seed), *args)
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
        typed = getattr(mine, name)(mine.key(seed), *args)
        assert typed.shape == want.shape[:-1]
        assert str(typed.dtype) == "key<fry>"
        assert np.array_equal(np.asarray(mine.key_data(typed)), np.asarray(want))


def test_keys_of_64_bits(wide):
    for seed in (0, -1, 2**40 + 3, -(2**40)):
        want = np.asarray(theirs.PRNGKey(seed))
        assert np.array_equal(np.asarray(mine.PRNGKey(seed)), want)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32"])
def test_bits(shape, kind, way):
    for typed in (True, False):
        check("bits", 3, shape, kind, exact=True, typed=typed)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_of_64(shape, way, wide):
    check("bits", 3, shape, "uint64", exact=True)
    check("uniform", 3, shape, "float64", exact=True)
    check("normal", 3, shape, "float64", rtol=1e-11)
    check("randint", 3, shape, -(10**15), 10**15, "int64", exact=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_uniform(shape, kind, way):
    for seed in range(1):
        check("uniform", seed, shape, kind, exact=True)
        check("uniform", seed, shape, kind, -0.3, 2.7, exact=True)
        check("normal", seed, shape, kind, rtol=1e-6 if kind == "float32" else 2e-3)


@pytest.mark.parametrize("kind", "int8 uint8 int16 uint16 int32 uint32".split())
def test_integers(kind):
    info = np.iinfo(kind)
    ends = [(0, 10), (3, 3), (5, 2), (0, 128), (1, info.max), (info.min // 2, info.max // 2)]
    for seed, (low, high) in enumerate(ends):
        if low >= info.min and high <= 2**31 - 1:
            check("randint", seed, (257,), low, high, kind, exact=True)
    check("randint", 1, (3, 4), np.arange(4), np.arange(4) * 10 + 1, kind, exact=True)


def test_orders():
    for n in (0, 10, 3000):
        check("permutation", n, n, exact=True)
    x = np.arange(24.0, dtype=np.float32).reshape(4, 6)
    for axis in (0, 1, -1):
        check("permutation", 5, x, axis, exact=True)
        check("permutation", 5, x, axis, True, exact=True)
    check("choice", 1, 10, (7,), exact=True)
    check("choice", 1, 10, (7,), False, exact=True)
    check("choice", 1, x, (3,), False, None, 1, exact=True)
    check("choice", 1, x, (2, 2), True, None, 1, exact=True)
    p = np.asarray([0.1, 0.2, 0.3, 0.4], np.float32)
    check("choice", 2, 4, (500,), True, p, exact=True)
    check("choice", 2, 4, (3,), False, p, exact=True)
    check("choice", 2, x, (3,), False, p, exact=True)


def test_categorical():
    logits = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    check("categorical", 1, logits, exact=True)
    check("categorical", 1, logits, 0, exact=True)
    check("categorical", 1, logits, shape=(9, 50), exact=True)
    check("categorical", 1, logits, shape=(3, 50), replace=False, exact=True)
    check("categorical", 1, logits, mode="high", exact=True)


PLAIN = "cauchy exponential laplace logistic maxwell gumbel normal uniform"


@pytest.mark.parametrize("name", PLAIN.split())
def test_without_parameters(name):
    for seed in range(2):
        check(name, seed, (1000,), rtol=2e-6)
        check(name, seed, rtol=2e-6)
    if name == "gumbel":
        check(name, 1, (1000,), mode="high", rtol=2e-6)


A = np.asarray([[0.3, 1.0, 2.5, 7.0]], np.float32)
WITH = [
    ("beta", (A, 2.0)), ("gamma", (A,)), ("loggamma", (A,)), ("pareto", (A,)), ("t", (A,)),
    ("chisquare", (A,)), ("f", (A, 3.0)), ("rayleigh", (A,)),
    ("triangular", (0.0, A, 9.0)), ("truncated_normal", (-A, 1.0)), ("lognormal", (A,)),
    ("double_sided_maxwell", (1.0, 2.0)), ("weibull_min", (2.0, 1.5)),
    ("generalized_normal", (1.5,)),
]  # fmt: skip


@pytest.mark.parametrize("name, params", WITH, ids=[w[0] for w in WITH])
def test_with_parameters(name, params):
    for seed in range(1):
        check(name, seed, *params, shape=(250, 4), rtol=5e-6)
    if name not in ("weibull_min", "generalized_normal", "double_sided_maxwell"):
        check(name, 1, *params, rtol=5e-6)


def test_where_digits_cancel():
    check("wald", 1, A, (250, 4), rtol=2e-4)


def test_vectors():
    check("ball", 1, 3, 1.5, (200,), rtol=1e-5)
    check("ball", 1, 3, rtol=1e-5)
    check("dirichlet", 1, A[0], (200,), rtol=1e-5)
    check("orthogonal", 1, 5, (3,), rtol=1e-5)
    check("orthogonal", 1, 5, (3,), None, 3, rtol=1e-5)
    check("orthogonal", 1, 3, (3,), None, 5, rtol=1e-5)
    cov = np.asarray([[2.0, 0.5], [0.5, 1.0]], np.float32)
    mean = np.asarray([[1.0, 2.0], [3.0, 4.0]], np.float32)
    check("multivariate_normal", 1, mean, cov, rtol=1e-5)
    check("multivariate_normal", 1, mean, cov, (5, 2), rtol=1e-5)


def test_counts():
    rate = np.asarray([0.0, 0.5, 3.0, 12.0, 300.0, np.nan], np.float32)
    for seed in range(1):
        check("poisson", seed, rate, (200, 6), exact=True)
        check("binomial", seed, 10, 0.3, (500,), exact=True)
        check("binomial", seed, np.asarray([5.0, 50.0, 900.0]), 0.6, (300, 3), exact=True)
        check("geometric", seed, np.asarray([0.1, 0.5], np.float32), (300, 2), exact=True)
        check("bernoulli", seed, 0.3, (500,), exact=True)
        check("bernoulli", seed, 0.3, (500,), "high", exact=True)
        check("rademacher", seed, (500,), exact=True)
        check("multinomial", seed, 20.0, np.asarray([0.2, 0.3, 0.5], np.float32), exact=True)


WRONG = [
    ("normal", lambda r: (1,)), ("normal", lambda r: (np.zeros(3, np.uint32),)),
    ("normal", lambda r: (np.zeros(2, np.int32),)), ("normal", lambda r: (r.key(0), (1.5,))),
    ("normal", lambda r: (r.split(r.key(0)),)), ("normal", lambda r: (r.key(0), (2,), "int32")),
    ("randint", lambda r: (r.key(0), (2,), 0, 5, "float32")),
    ("key", lambda r: (np.arange(3),)), ("uniform", lambda r: (r.key(0), (2,), "int32")),
    ("bits", lambda r: (r.key(0), (2,), "int32")), ("bernoulli", lambda r: (r.key(0), 1)),
    ("choice", lambda r: (r.key(0), 5, (6,), False)), ("choice", lambda r: (r.key(0), 5, 3)),
    ("gamma", lambda r: (r.key(0), np.ones(3), (2,))), ("permutation", lambda r: (r.key(0), 1.5)),
    ("permutation", lambda r: (r.key(0), 5, 1)), ("fold_in", lambda r: (r.key(0), np.arange(3))),
    ("key", lambda r: (r.key(0),)),
    ("categorical", lambda r: (r.key(0), np.ones((3, 4)), -1, (7, 2))),
    ("multivariate_normal", lambda r: (r.key(0), np.ones(3), np.ones((2, 2)))),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WRONG)), ids=[w[0] for w in WRONG])
def test_errors(case):
    name, args = WRONG[case]
    with pytest.raises(Exception) as want:
        getattr(theirs, name)(*args(theirs))
    with pytest.raises(type(want.value)) as got:
        getattr(mine, name)(*args(mine))
    assert str(got.value).split("\n")[0][:48] == str(want.value).split("\n")[0][:48]
