"""What Python may know of values inside transforms."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_traced_values_in_format_strings():
    seen = []

    def look(x):
        seen.append(f"{x} {x:}")
        with pytest.raises(TypeError, match="unsupported format string"):
            f"{x:.2f}"
        return x

    jax.jit(look)(1.5)
    assert seen == ["JitTracer(~float32[]) JitTracer(~float32[])"]
    assert f"{jnp.float32(1.5):.2f} {jnp.ones(2)}" == "1.50 [1. 1.]"


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap])
def test_values_that_outlive_their_function(transform):
    kept = []
    transform(lambda x: (kept.append(x), x)[1])(jnp.ones(2))
    for use in (jnp.sum, jnp.sin, lambda x: x + 1):
        with pytest.raises(jax.errors.UnexpectedTracerError):
            use(kept[0])
