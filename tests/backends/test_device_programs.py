"""Fused functions and update rules on the arrays of an accelerator: its platform runs kernels."""

import inspect
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from disttrain.backends.device import platform as places
from disttrain.backends.family import Family
from disttrain.backends.fused import casts, cross_entropy, elementwise, softmax
from disttrain.backends.fused.normalization import norms
from disttrain.backends.lang.kernel import Array, Scalar
from disttrain.backends.lang.kernel import elementwise as made
from disttrain.backends.lang.scalars import for_arguments
from disttrain.backends.program import Program
from disttrain.optim import rules


class Raw(np.ndarray):
    """Stands for an accelerator's array; what numpy makes of it is one, too."""


class Pretend(places.Platform):
    """Runs kernels by numpy and keeps count."""

    kind, array_type = "pretend", Raw
    strided = partial(np.lib.stride_tricks.as_strided, subok=True)
    xp = SimpleNamespace(lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=strided)))

    def __init__(self):
        self.kernels = []

    def launch(self, kernel, args):
        assert not [a for a in args if a.__class__ is np.ndarray], kernel.name
        self.kernels.append(kernel.name)
        plain = [a.view(np.ndarray) if isinstance(a, Raw) else a for a in args]
        plain = [
            a.item() if isinstance(p, Scalar) and isinstance(a, np.ndarray) else a
            for p, a in zip(kernel.params, plain)
        ]
        Program(kernel)(*plain)

    def index_of(self, array):
        return 0


Pretend.__abstractmethods__ = frozenset()


@pytest.fixture
def pretend():
    places.offer("pretend", Pretend)
    yield places.platform("pretend")
    places.offer("pretend", None)


def there(a):
    return a.view(Raw) if isinstance(a, np.ndarray) and a.size else a


def both(fn, *args, **more):
    """The results on numpy's arrays, and on those of the accelerator, which all lie there."""
    want = fn(*[a.copy() if isinstance(a, np.ndarray) else a for a in args], **more)
    got = fn(*[there(a.copy()) if isinstance(a, np.ndarray) else a for a in args], **more)
    want, got = (r if isinstance(r, tuple) else (r,) for r in (want, got))
    for w, g in zip(want, got, strict=True):
        if w is None:
            assert g is None
            continue
        assert isinstance(g, Raw)
        assert g.dtype == w.dtype if isinstance(w, np.ndarray) else g.dtype == np.float64
        np.testing.assert_allclose(g.view(np.ndarray), w, rtol=1e-5, atol=1e-5)


def test_every_fused_function_serves_arrays_of_an_accelerator(pretend):
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(2, 600, 7)).astype(np.float32)
    weight, bias = rng.normal(size=(2, 7)).astype(np.float32)
    target = rng.integers(0, 7, 600)
    for fn in (elementwise.gelu, elementwise.silu, elementwise.relu, elementwise.erf):
        both(fn, x)
    for fn in (elementwise.silu_backward, elementwise.relu_backward, elementwise.gelu_backward):
        both(fn, g, x)
        both(fn, g, x[0])
    both(elementwise.tanh_backward, np.float32(2), x)
    both(elementwise.dropout, x, x > 0, 2.0)
    both(elementwise.axpy, 3.0, x, g)
    both(lambda *a: elementwise.sum_arrays(a), *[x] * 17)
    both(lambda a, out: casts.scaled(a, 0.5, out), x, x.astype(np.float16))
    assert elementwise.norm_squared(there(x)) == elementwise.norm_squared(x)
    for fn in (softmax.softmax, softmax.log_softmax):
        both(fn, x)
    for fn in (softmax.softmax_backward, softmax.log_softmax_backward):
        both(fn, g, x)
    both(norms.layer_norm, x, weight, bias, 1e-5)
    both(norms.rms_norm, x, weight, 1e-5)
    mean, rstd = x.mean(-1), 1 / x.std(-1)
    both(norms.layer_norm_backward, g, x, mean, rstd, weight)
    both(norms.layer_norm_backward, g, x, mean, rstd, None)
    both(norms.rms_norm_backward, g, x, rstd, weight)
    for more in ({}, {"weight": weight}, {"weight": weight, "label_smoothing": 0.1}):
        more = dict(more)
        given = more.pop("weight", None)
        both(cross_entropy.cross_entropy, x, target, given, **more)
        lse = np.log(np.exp(x).sum(-1))
        for scale in (g[:, 0], 0.25):
            both(cross_entropy.cross_entropy_backward, scale, x, target, lse, given, **more)
    assert pretend.kernels.count("layer_norm_backward") == 2  # one for all rows


def test_a_number_that_only_the_device_knows_serves_all_rows(pretend):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(5, 3)).astype(np.float32)
    target, lse = rng.integers(0, 3, 5), np.log(np.exp(x).sum(-1))
    want = cross_entropy.cross_entropy_backward(0.5, x, target, lse)
    got = cross_entropy.cross_entropy_backward(
        there(np.asarray(0.5, np.float32)), there(x), there(target), there(lse)
    )
    np.testing.assert_array_equal(got.view(np.ndarray), want)


def test_no_machine_code_is_made_for_what_only_an_accelerator_runs(pretend):
    family = Family(lambda t: made("twice", lambda x: x * 2, (Array("x", t),), t))
    x = np.arange(4, dtype=np.float32)
    out = there(np.empty_like(x))
    assert family[x.dtype].fast(there(x), out) is True
    assert family[x.dtype].variants == {}
    host = np.empty_like(x)
    family[x.dtype](x, host)
    np.testing.assert_array_equal(out.view(np.ndarray), host)
    family[x.dtype](there(x), out)
    assert pretend.kernels == ["twice", "twice"]


@pytest.mark.parametrize("name", ["adam", "sgd", "rmsprop", "asgd", "nadam"])
def test_rules_step_many_parameters_at_once(pretend, name):
    prim = rules.rmsprop[True, True] if name == "rmsprop" else getattr(rules, name)
    rule = rules.BEHIND[prim]
    hyper = {**dict.fromkeys(inspect.signature(rule.numbers).parameters, 0.1), "maximize": False}
    hyper = {k: v for k, v in hyper.items() if k not in ("t", "moving")}  # what rules take
    rng = np.random.default_rng(2)
    sets = []
    for kind, count in (("float32", 3), ("float64", 2), ("complex64", 1)):
        for _ in range(count):
            arrays = [
                rng.uniform(0.5, 1, (2, 3)).astype(kind) for _ in range(len(rule.update.state) + 2)
            ]
            singles = [np.asarray(0.5, np.float32) for _ in rule.moving]
            sets.append(
                [*arrays, *singles, *([np.asarray(2.0, np.float32)] if rule.counted else [])]
            )
    if rule.counted:
        sets[0][-1][...] = 7
    wanted = [[a.copy() for a in one] for one in sets]
    for one in wanted:
        rules.prepared(prim, hyper)(*one)
    lying = [[there(a) if a.ndim else np.asarray(a) for a in one] for one in sets]
    rules.together(prim, hyper)(lying)
    for one, want in zip(lying, wanted):
        for a, w in zip(one, want):
            np.testing.assert_allclose(a.view(np.ndarray), w, rtol=1e-6)


def test_a_kernel_is_made_for_what_it_is_given():
    params = (Scalar("a"), Array("x", "float32"), Array("y", "float32"))
    kernel = made("axpy", lambda a, x, y: a * x + y, params, "float32")
    other = for_arguments(kernel, (True, False, True, True))
    assert other.params == (
        Array("a", "float32", "one"),
        Scalar("x"),
        Array("y", "float32"),
        Array("out", "float32", writes=True),
    )
    assert for_arguments(kernel, (False, True, True, True)) is kernel
    with pytest.raises(TypeError, match="out is a number; it is written to"):
        for_arguments(kernel, (False, True, True, False))
