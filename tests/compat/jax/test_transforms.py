"""grad, vjp, jvp and linearize with JAX's conventions."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax as jax

jnp = jax.numpy


def test_gradients_of_trees_and_numbers():
    grads = jax.grad(lambda p: p["a"] * p["b"][0])({"a": 2.0, "b": (3.0, None)})
    assert float(grads["a"]) == 3.0 and grads["b"][1] is None and grads["a"].weak_type
    (value, aux), g = jax.value_and_grad(lambda x: (x**2, {"n": "text"}), has_aux=True)(3.0)
    assert (float(value), aux["n"], float(g)) == (9.0, "text", 6.0)
    assert [float(g) for g in jax.grad(lambda x, y: x * y, argnums=(0, 1))(2.0, 3.0)] == [3.0, 2.0]


def test_complex_cotangents_are_not_conjugated():
    assert complex(jax.grad(lambda z: z * z, holomorphic=True)(1j)) == 2j
    assert complex(jax.grad(lambda z: z.real**2)(1 + 2j)) == 2


def test_integers_have_nothing():
    _, pull = jax.vjp(lambda n, x: n * x, 3, 2.0)
    nothing, g = pull(1.0)
    assert nothing.dtype == jax.float0 and float(g) == 3.0
    _, moved = jax.jvp(lambda n: n * 2, (1,), (np.zeros((), jax.float0),))
    assert moved.dtype == jax.float0


def test_values_in_grad_are_there_and_print_as_jaxs(capsys):
    def f(x):
        print(x)
        return x * 2 if x > 0 else x

    assert float(jax.grad(f)(1.0)) == 2.0
    jax.jvp(f, (1.0,), (1.0,))
    assert capsys.readouterr().out.splitlines() == [
        "GradTracer(primal=1.0, typeof(tangent)=f32[])",
        "JVPTracer(primal=1.0, tangent=1.0)",
    ]


def test_linearize_runs_once():
    calls = []
    value, push = jax.linearize(lambda x: calls.append(1) or jnp.sin(x), 0.0)
    assert [float(push(t)) for t in (1.0, 2.0)] == [1.0, 2.0] and len(calls) == 1


@pytest.mark.parametrize(
    ("run", "match"),
    [
        (lambda: jax.grad(lambda x: x)(1), "real- or complex-valued inputs"),
        (lambda: jax.grad(lambda x: x)(jnp.ones(3)), r"Output had shape: \(3,\)"),
        (lambda: jax.grad(lambda x: x, argnums=1)(1.0), "at least 2 positional arguments"),
        (lambda: jax.grad(lambda x: x)("a"), "not a valid JAX type"),
        (lambda: jax.grad(lambda x: x, has_aux=True)(1.0), "two-element tuple"),
        (lambda: jax.jvp(lambda x: x, (1.0,), (1,)), "dtypes must be equal"),
        (lambda: jax.jvp(lambda x: x, 1.0, 1.0), "must be tuples or lists"),
        (lambda: jax.grad(3), "Expected a callable"),
    ],
)
def test_errors(run, match):
    with pytest.raises(TypeError, match=match):
        run()
