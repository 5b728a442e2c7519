"""``jax.random`` gives the numbers that JAX gave when they were recorded."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from disttrain import func, keyed
from disttrain.compat.jax import random as r
from disttrain.compat.jax.array import unwrap, wrap
from disttrain.compat.jax.types import X64
from disttrain.context import thread

RECORDED = json.loads((Path(__file__).parent / "data" / "random.json").read_text())
F32 = np.float32
DRAWS = {
    "split": lambda k: r.key_data(r.split(k)),
    "split (2,3)": lambda k: r.key_data(r.split(k, (2, 3))),
    "fold_in": lambda k: r.key_data(r.fold_in(k, 5)),
    "bits uint8": lambda k: r.bits(k, (33, 5), "uint8"),
    "bits uint16": lambda k: r.bits(k, (33, 5), "uint16"),
    "bits uint32": lambda k: r.bits(k, (33, 5), "uint32"),
    "uniform float32": lambda k: r.uniform(k, (33, 5)),
    "uniform bfloat16": lambda k: r.uniform(k, (33, 5), "bfloat16"),
    "uniform float16": lambda k: r.uniform(k, (33, 5), "float16"),
    "randint": lambda k: r.randint(k, (6,), -5, 1000),
    "randint uint8": lambda k: r.randint(k, (100,), 0, 256, "uint8"),
    "permutation": lambda k: r.permutation(k, 10),
    "permutation 3000": lambda k: r.permutation(k, 3000),
    "bernoulli": lambda k: r.bernoulli(k, 0.3, (100,)),
    "poisson": lambda k: r.poisson(k, np.asarray([0.5, 4.0, 50.0], F32), (2, 3)),
    "binomial": lambda k: r.binomial(k, np.asarray([5.0, 100.0], F32), 0.4, (3, 2)),
    "rademacher": lambda k: r.rademacher(k, (6,)),
    "categorical": lambda k: r.categorical(k, np.log(np.asarray([0.1, 0.2, 0.7], F32)), shape=(8,)),
    "choice": lambda k: r.choice(k, 10, (4,), False),
    "geometric": lambda k: r.geometric(k, F32(0.2), (6,)),
    "multinomial": lambda k: r.multinomial(k, 20.0, np.asarray([0.2, 0.3, 0.5], F32)),
}
PARAMETERS = {
    "beta": (0.5, 2.0), "gamma": (0.7,), "loggamma": (0.3,), "pareto": (2.0,), "t": (3.0,),
    "chisquare": (3.0,), "f": (3.0, 5.0), "rayleigh": (2.0,), "wald": (2.0,),
    "triangular": (0.0, 1.0, 3.0), "lognormal": (0.5,), "truncated_normal": (-1.0, 2.0),
    "double_sided_maxwell": (1.0, 2.0), "weibull_min": (2.0, 1.5), "generalized_normal": (1.5,),
    "ball": (2, 2.0),
}  # fmt: skip


@pytest.fixture(params=["partitionable", "original"])
def way(request):
    with keyed.as_partitionable(request.param == "partitionable"):
        yield request.param


def as_recorded(found, want):
    found = np.asarray(found)
    if isinstance(want, int):
        return zlib.crc32(np.ascontiguousarray(found).tobytes()) == want
    return found.reshape(-1).tolist() == np.asarray(want).reshape(-1).tolist()


@pytest.mark.parametrize("name", DRAWS)
def test_exact(name, way):
    assert as_recorded(DRAWS[name](r.key(7)), RECORDED[way]["exact"][name])


@pytest.mark.parametrize("name", RECORDED["original"]["near"])
def test_near(name, way):
    found = getattr(r, name)(r.key(7), *PARAMETERS.get(name, ()), (3,))
    np.testing.assert_allclose(np.asarray(found), RECORDED[way]["near"][name], rtol=1e-4, atol=1e-6)
    assert found.dtype == np.float32


def test_64_bits():
    thread.rank.slots[X64] = True
    try:
        want, k = RECORDED["x64"], r.key(7)
        assert as_recorded(r.bits(k, (33, 5), "uint64"), want["bits uint64"])
        assert as_recorded(r.uniform(k, (33, 5)), want["uniform float64"])
        np.testing.assert_allclose(np.asarray(r.normal(k, (3,))), want["normal float64"], 1e-12)
        assert as_recorded(r.randint(k, (3,), -(10**15), 10**15), want["randint int64"])
        assert as_recorded(r.PRNGKey(2**40 + 3), want["seed"])
    finally:
        thread.rank.slots[X64] = False


def test_words_and_typed_keys_draw_the_same():
    typed, words = r.key(3), r.PRNGKey(3)
    assert str(typed.dtype) == "key<fry>" and typed.shape == () and words.shape == (2,)
    assert np.array_equal(np.asarray(r.key_data(typed)), np.asarray(words))
    assert np.array_equal(np.asarray(r.normal(typed, (3,))), np.asarray(r.normal(words, (3,))))
    assert r.wrap_key_data(words).dtype == typed.dtype
    assert r.key_impl(words) == "threefry2x32"
    assert r.split(words, 4).shape == (4, 2) and r.split(typed, (4, 1)).shape == (4, 1)


def test_many_keys_at_once():
    keys = r.split(r.key(0), 5)
    mapped = func.vmap(lambda k: r.normal(wrap(k), (2,))._value)(unwrap(keys))
    one = [np.asarray(r.normal(wrap(unwrap(keys)[i]), (2,))) for i in range(5)]
    assert np.array_equal(mapped.numpy(), np.stack(one))


WRONG = [
    (ValueError, "single key", lambda: r.normal(r.split(r.key(0)))),
    (TypeError, "unexpected PRNG key type", lambda: r.normal("key")),
    (TypeError, "end with", lambda: r.normal(np.zeros(3, np.uint32))),
    (TypeError, "uint32", lambda: r.normal(np.zeros(2, np.int32))),
    (ValueError, "must be a float", lambda: r.uniform(r.key(0), (2,), "int32")),
    (TypeError, "integer dtypes", lambda: r.randint(r.key(0), (2,), 0, 5, "float32")),
    (ValueError, "broadcast", lambda: r.gamma(r.key(0), np.ones(3), (2,))),
    (ValueError, "larger sample", lambda: r.choice(r.key(0), 5, (6,), False)),
    (ValueError, "out of bounds", lambda: r.permutation(r.key(0), 5, 1)),
    (TypeError, "must be an integer", lambda: r.key(1.5)),
    (TypeError, "scalar seed", lambda: r.PRNGKey(np.arange(3))),
    (ValueError, "unrecognized PRNG", lambda: r.key(0, impl="mersenne")),
    (NotImplementedError, "rbg", lambda: r.key(0, impl="rbg")),
    (OverflowError, "out of bounds", lambda: r.fold_in(r.key(0), -1)),
    (TypeError, "Shapes must be", lambda: r.normal(r.key(0), (1.5,))),
    (ValueError, "categories", lambda: r.categorical(r.key(0), np.ones(3), -1, (9,), False)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_errors(case):
    kind, said, call = WRONG[case]
    with pytest.raises(kind, match=said):
        call()


def test_choices_by_a_list_of_chances():
    assert int(r.choice(r.key(0), 3, p=[0.0, 1.0, 0.0])) == 1
