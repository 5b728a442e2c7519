"""``jax.numpy`` and ``jax.nn`` beside the real JAX: values, types, weak types, shapes, classes of
errors, and gradients."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

pytestmark = pytest.mark.peer
pytest.importorskip("jax")

import jax as theirs  # noqa: E402
import jax.scipy.linalg  # noqa: E402
import jax.scipy.special  # noqa: E402
import jax.scipy.stats  # noqa: E402

import disttrain.compat.jax as ours  # noqa: E402
import disttrain.compat.jax.numpy as our_numpy  # noqa: E402
import disttrain.compat.jax.scipy as our_scipy  # noqa: E402
from disttrain.compat.jax import nn as our_nn  # noqa: E402


class Names:
    """What programs call jax."""

    numpy, scipy, nn = our_numpy, our_scipy, our_nn


R = np.random.default_rng(0)
GIVEN = {
    "x": (R.normal(size=(2, 3)) * 2).astype(np.float32), "i": R.integers(-6, 7, (2, 3), np.int32),
    "v": R.normal(size=5).astype(np.float32), "w": R.uniform(0.1, 3, 5).astype(np.float32),
    "b": R.integers(0, 2, (2, 3)).astype(bool), "h": R.normal(size=(2, 3)).astype(np.float16),
    "u": R.integers(0, 9, 5).astype(np.uint8), "at": np.array([3, 1, 1, 0, 9], np.int32),
    "c": (R.normal(size=3) + 1j * R.normal(size=3)).astype(np.complex64),
    "p": np.eye(3, dtype=np.float32) * 4 + R.uniform(0, 1, (3, 3)).astype(np.float32),
}  # fmt: skip
TYPES = "x i b h u c".split()
CALLS = [
    *(f"jnp.{f}({x})" for f in "exp floor abs sign isnan".split()
      for x in (*TYPES, "2", "0.5", "True")),
    *(f"jnp.{f}({x}, {y})" for f in "add divide floor_divide power less".split()
      for x, y in (("x", "2"), ("i", "2"), ("i", "0.5"), ("b", "b"), ("h", "x"), ("u", "-1"),
                   ("i", "h"), ("u", "jnp.int8(3)"), ("c", "2"), ("3", "0.5"))),
    *(f"jnp.{f}({x}{more})" for f in "sum max mean any argmax".split() for x in "xib"
      for more in ("", ", axis=0", ", axis=1, keepdims=True", ", axis=4")),
    *(f"x[{k}]" for k in ("0", "-1", "7", "::-1", "None", "..., 0", "at", "b", "[0]", "1.0", "'a'",
      "jnp.array([0, 1]), 2", "0, at", "True", "at, at", "5:1", "jnp.uint8(9)", "b[0]", "0, 0, 0")),
    *(f"v.at[{k}].{f}" for k in ("0", "at", "1:3", "v > 0", "-9")
      for f in ("set(1)", "add(2.5)", "multiply(2)", "max(0)", "get()", "set(1, mode='clip')",
                "get(mode='fill')", "divide(3)")),
    "jnp.concatenate([x, i])", "jnp.stack([v, w], 1)", "jnp.concatenate([x, v])", "jnp.split(v, 2)",
    "jnp.pad(x, 1, mode='edge')", "jnp.unique(at, return_counts=True)", "jnp.unique(at, size=7)",
    "jnp.nonzero(i, size=3)", "jnp.where(b, x, 0)", "jnp.where(b, 1, 2.5)", "jnp.sort(x, 0)",
    "jnp.histogram(v, 4)", "jnp.interp(w, jnp.sort(v), w)", "jnp.convolve(v, w, 'same')",
    "jnp.einsum('ij,kj->ik', x, i)", "x @ x.T", "x @ v", "jnp.cov(x)", "jnp.median(x, 1)",
    "jnp.percentile(v, 30, method='nearest')", "jnp.array([1, 2.5])", "jnp.array(3)", "x + None",
    "jnp.array([True, 2])", "jnp.array(None)", "jnp.array('a')", "jnp.arange(0, 1, 0.25)",
    "jnp.linspace(0, 4, 3, dtype=int)", "jnp.full((2,), 3)", "jnp.zeros_like(i, dtype=float)",
    "jnp.take(v, at)", "jnp.insert(v, 1, 9)", "jnp.delete(v, jnp.array([0, -1]))",
    "jnp.reshape(x, (4, 2))", "jnp.squeeze(x, 0)", "jnp.polyfit(v, w, 1)", "jnp.fft.rfft(v)",
    "jnp.linalg.inv(p)", "jnp.linalg.norm(x, 'nuc')", "jnp.linalg.slogdet(p)", "jnp.gradient(v)",
    "jnp.result_type(i, 1.5)", "float(x)", "bool(x)", "hash(x)", "x.item()", "len(x)",
    *(f"jax.nn.{f}({x})" for f in "relu gelu silu softplus elu softmax logsumexp".split()
      for x in ("x", "1.5", "h")),
    "jax.nn.one_hot(at, 4)", "jax.scipy.special.gammaln(w)", "jax.scipy.special.betainc(2., 3., v)",
    "jax.scipy.stats.norm.logpdf(v, 1, 2)", "jax.scipy.stats.beta.cdf(v, 2., 3.)",
    "jax.scipy.linalg.expm(p * 0.1)", "jax.scipy.special.expi(w)", "jax.scipy.special.spence(w)",
]  # fmt: skip
SLOPES = """
v jnp.tanh(a).sum()|w jnp.power(a, a).sum()|v jnp.maximum(a, 0.).sum()|v a.max()|v jnp.prod(a)
v a.std()|x jnp.linalg.norm(a)|v jnp.cumprod(a)[3]|v jnp.sort(a)[2]|v a[at[:4]].sum()
v a.at[at].add(a[:5]).sum()|v jnp.interp(a, jnp.arange(5.), jnp.arange(5.) ** 2).sum()
x (a @ a.T).sum()|p jnp.linalg.inv(a).sum()|p jnp.linalg.cholesky(a).sum()|v jnp.median(a)
v jax.nn.softmax(a)[1]|v jax.nn.gelu(a).sum()|v jax.nn.logsumexp(a)
w jax.scipy.special.gammaln(a).sum()
x jnp.pad(a, 1, mode='edge').sum()|v jnp.where(a > 0, a * 2, a * 3).sum()|v jnp.convolve(a, a).sum()
"""


def flat(value):
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in flat(part)]
    return [value]


def outcome(text, jnp, jax):
    given = {name: jnp.asarray(value) for name, value in GIVEN.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return flat(eval(text, {"jnp": jnp, "jax": jax, "np": np, **given}))
        except Exception as error:
            return error


def agree(one, two):
    if not hasattr(one, "weak_type"):
        return one == two
    if (one.shape, one.dtype, one.weak_type) != (two.shape, two.dtype, two.weak_type):
        return False
    narrow = {"float16": 4e-3, "float32": 5e-5, "complex64": 5e-5}
    close = narrow.get(one.dtype.name, 0)
    return np.allclose(np.asarray(one), np.asarray(two), close, close / 3, equal_nan=True)


@pytest.mark.parametrize("text", CALLS)
def test_calls(text):
    one, two = outcome(text, theirs.numpy, theirs), outcome(text, our_numpy, Names)
    if isinstance(one, Exception):
        kinds = [c.__name__ for c in type(two).__mro__]
        known = [c for c in type(one).__mro__ if c.__module__ == "builtins"]
        assert isinstance(two, Exception) and known[0].__name__ in kinds, two
        return
    assert not isinstance(two, Exception), two
    assert len(one) == len(two) and all(map(agree, one, two)), (one, two)


@pytest.mark.parametrize("row", SLOPES.replace("\n", "|").strip("|").split("|"))
def test_gradients(row):
    name, text = row.split(" ", 1)
    made = []
    for used, jnp, names in ((theirs, theirs.numpy, theirs), (ours, our_numpy, Names)):
        given = {"jnp": jnp, "jax": names, "at": jnp.asarray(GIVEN["at"])}
        fn = eval(f"lambda a: {text}", given)
        x = jnp.asarray(GIVEN[name])
        batch = used.jit(used.vmap(fn))(jnp.stack([x, x]))
        made.append([np.asarray(used.grad(fn)(x)), np.asarray(batch)])
    for one, two in zip(*made, strict=True):
        np.testing.assert_allclose(two, one, rtol=2e-4, atol=2e-5)
