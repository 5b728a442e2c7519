"""jit: staged once for each kind of call."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial

import numpy as np
import pytest

import disttrain.compat.jax as jax
from disttrain.func.trees import programs

jnp = jax.numpy


def test_python_runs_once_for_each_kind(capsys):
    @jax.jit
    def f(x, y=2):
        print("trace", x)
        return x * y

    given = (1.0, 2.0, jnp.float32(3.0), 1, np.ones(2), np.ones(2), jnp.ones(2))
    assert [np.asarray(f(v)).tolist() for v in given[:4]] == [2.0, 4.0, 6.0, 2]
    for v in given[4:]:
        f(v)
    assert float(jax.grad(f)(3.0)) == 2.0 and jax.vmap(f)(jnp.ones(4)).shape == (4,)
    assert float(jax.grad(jax.grad(lambda x: f(x) * x))(3.0)) == 4.0
    assert capsys.readouterr().out.splitlines() == [
        "trace JitTracer(~float32[])", "trace JitTracer(float32[])", "trace JitTracer(~int32[])",
        "trace JitTracer(float32[2])",
    ]  # fmt: skip


def test_static_arguments():
    calls = []
    f = jax.jit(lambda x, n: calls.append(n) or jnp.ones(n) * x, static_argnums=1)
    assert [f(1.0, n).shape for n in (2, 2, 3)] == [(2,), (2,), (3,)] and calls == [2, 3]
    named = jax.jit(lambda x, *, flag: x if flag else -x, static_argnames="flag")
    assert float(named(1.0, flag=False)) == -1.0
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        f(1.0, [2])
    with pytest.raises(ValueError, match="only accepts 2"):
        jax.jit(lambda x, n: x, static_argnums=5)


def test_methods():
    class Scale:
        def __init__(self, by):
            self.by = by

        @partial(jax.jit, static_argnums=0)
        def __call__(self, x):
            return x * self.by

    three, four = Scale(3), Scale(4)
    assert [float(s(2.0)) for s in (three, four, three)] == [6.0, 8.0, 6.0]


def test_values_are_not_there():
    for run, error in (
        (lambda x: x if x > 0 else -x, jax.errors.TracerBoolConversionError),
        (float, jax.errors.ConcretizationTypeError),
        (np.asarray, jax.errors.TracerArrayConversionError),
        (lambda x: [1, 2][x.astype(int)], jax.errors.TracerIntegerConversionError),
    ):
        with pytest.raises(error, match="depends on the value of the argument x"):
            jax.jit(lambda x, run=run: run(x))(1.0)
    kept = []
    jax.jit(lambda x: kept.append(x))(1.0)
    with pytest.raises(jax.errors.UnexpectedTracerError):
        kept[0] + 1


def test_what_it_closes_over_is_differentiated():
    def f(w):
        return jax.jit(lambda x: (x * w).sum())(jnp.arange(3.0))

    assert float(jax.grad(f)(2.0)) == 3.0
    assert jax.vmap(f)(jnp.arange(3.0)).tolist() == [0.0, 3.0, 6.0]


def test_replays_give_the_same_bits():
    f = lambda x, w: jnp.tanh(x @ w).sum() + jnp.exp(-x).mean()
    step = jax.jit(jax.value_and_grad(f))
    x, w = np.random.default_rng(0).standard_normal((2, 5, 5)).astype(np.float32)
    first = step(x, w)
    for _ in range(4):
        again = step(x, w)
        assert np.asarray(first[1]).tobytes() == np.asarray(again[1]).tobytes()
    np.testing.assert_allclose(first[0], f(jnp.asarray(x), jnp.asarray(w)), rtol=1e-6)


def test_lowered_programs_take_one_kind():
    lowered = jax.jit(lambda x: x * 2).lower(jax.ShapeDtypeStruct((2,), np.float32))
    run = lowered.compile()
    assert run(jnp.ones(2)).tolist() == [2.0, 2.0] and "mul" in lowered.as_text()
    with pytest.raises(TypeError, match=r"Argument 'x' compiled with float32\[2\]"):
        run(jnp.ones(3))


def test_threads_have_their_own_levels():
    found = []
    f = jax.jit(lambda x: jax.grad(lambda y: (y**2).sum())(x))

    def work(k):
        found.append(float(f(jnp.full((2,), float(k)))[0]) == 2.0 * k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * 6


def test_disable_jit_runs_python():
    with jax.disable_jit():
        assert float(jax.jit(lambda x: x if x > 0 else -x)(-1.0)) == 1.0


class _Scale:
    by = 2.0

    def host(self, x):
        return np.asarray(x * self.by, np.float32)


_PROGRAMS = {
    "jit": lambda m: jax.jit(lambda x: x * m.by),
    "jit of jit": lambda m: jax.jit(jax.jit(lambda x: x * m.by)),
    "grad of jit": lambda m: jax.grad(jax.jit(lambda x: (x * m.by).sum())),
    "checkpoint": lambda m: jax.grad(jax.checkpoint(lambda x: (x * m.by).sum())),
    "scan": lambda m: jax.jit(lambda x: jax.lax.scan(lambda c, y: (c * m.by, y), 1.0, x)),
    "make_jaxpr": lambda m: jax.make_jaxpr(lambda x: x * m.by),
    "eval_shape": lambda m: lambda x: jax.eval_shape(lambda x: x * m.by, x),
    "callback": lambda m: jax.jit(
        lambda x: jax.pure_callback(m.host, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    ),
}


@pytest.mark.parametrize("program", _PROGRAMS.values(), ids=_PROGRAMS)
def test_programs_go_with_their_functions(program):
    m = _Scale()
    program(m)(jnp.ones(3))
    gone = weakref.ref(m)
    del m
    gc.collect()
    assert gone() is None


def test_so_many_programs_of_a_function_are_kept(monkeypatch):
    monkeypatch.setattr(programs, "_MOST", 4)
    f = jax.jit(lambda x: x * 2)
    for n in range(1, 8):
        assert f(jnp.ones(n)).shape == (n,)
    assert f._cache_size() == 4


def test_checkpoints_are_staged_apart():
    seen = []

    def f(x):
        seen.append(x)
        return x * x

    assert float(jax.jit(f)(3.0)) == float(jax.checkpoint(f)(3.0)) == 9.0
    assert len(seen) == 2
