"""What Python may know of values inside transforms."""

from __future__ import annotations

import numpy as np

import disttrain.compat.jax as jax
from disttrain.compat.jax.tracing import is_traced

jnp = jax.numpy


def test_traced_values():
    seen = []

    def look(x):
        seen.append((is_traced(x._value), repr(x), "~" * x.weak_type + jax.typeof(x).str_short()))
        return x

    jax.jit(look)(np.ones((2, 3), np.int8))
    jax.vmap(look)(jnp.ones(2))
    jax.grad(look)(1.0)
    jax.jit(jax.grad(look))(1.0)
    assert seen == [
        (True, "JitTracer(int8[2,3])", "i8[2,3]"),
        (True, "VmapTracer(aval=float32[], batched=float32[2])", "f32[]"),
        (False, "GradTracer(primal=1.0, typeof(tangent)=f32[])", "~f32[]"),
        (True, "GradTracer(primal=JitTracer(~float32[]), typeof(tangent)=f32[])", "~f32[]"),
    ]
