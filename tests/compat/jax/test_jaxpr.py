"""Programs in JAX's text form."""

from __future__ import annotations

import numpy as np

import disttrain.compat.jax as jax

jnp = jax.numpy


def test_text():
    assert str(jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(1.0)) == (
        "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = add b 1.0:f32[] in (c,) }"
    )
    assert str(jax.make_jaxpr(lambda x: jax.jit(lambda y: jnp.sin(y) + 1)(x))(jnp.ones(3))) == (
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[3] = jit[\n"
        "      name=<lambda>\n"
        "      jaxpr={ lambda ; a:f32[3]. let\n"
        "          c:f32[3] = sin a\n"
        "          b:f32[3] = add c 1.0:f32[]\n"
        "        in (b,) }\n"
        "    ] a\n"
        "  in (b,) }"
    )
    assert str(jax.make_jaxpr(lambda: 3)()) == "{ lambda ; . let  in (3:i32[],) }"


def test_parts():
    c = jnp.arange(3.0)
    closed = jax.make_jaxpr(lambda x: (x * c).sum())(np.ones(3, np.float32))
    assert [e.primitive.name for e in closed.eqns] == ["mul", "reduce_sum"]
    assert closed.consts[0].tolist() == [0.0, 1.0, 2.0]
    assert repr(closed.in_avals) == "[ShapedArray(float32[3])]"
    assert str(closed).startswith("{ lambda a:f32[3]; b:f32[3]. let")


def test_loops_and_rules():
    scan = lambda x: jax.lax.scan(lambda c, a: (c + a, c), 0.0, x)
    assert "length=3" in str(jax.make_jaxpr(scan)(jnp.ones(3)))
    f = jax.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda r, g: (g,))
    assert "custom_vjp_call[" in str(jax.make_jaxpr(f)(1.0))
