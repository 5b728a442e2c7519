"""What libraries name of JAX's internals: partial evaluation, primitives, boxes, names."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import disttrain.compat.jax as jax
import disttrain.compat.jax.numpy as jnp
from disttrain.compat.jax import extending
from disttrain.compat.jax.extending import PartialVal, WrappedFun


def test_results_that_no_unknown_enters_are_known():
    def f(tree):
        return {"open": tree["x"] * 2, "known": jnp.arange(3) + 1, "mixed": tree["x"].sum() + 1}

    leaves, form = jax.tree.flatten(({"x": jnp.ones(4)},))
    flat, ends = extending.flatten_fun_nokwargs(WrappedFun(f), form)
    given = [PartialVal.unknown(jax.typeof(x)) for x in leaves]
    _, outs, _ = extending.trace_to_jaxpr_nounits(flat, given)
    found = jax.tree.unflatten(ends(), outs)
    np.testing.assert_array_equal(np.asarray(found["known"][1]), [1, 2, 3])
    assert found["open"] == (jax.typeof(jnp.ones(4)), None)
    assert found["mixed"][0].shape == () and found["mixed"][1] is None


def test_a_primitive_of_ones_own_runs_under_transforms():
    twice = extending.Primitive("twice")
    twice.def_impl(lambda x: 2 * x)
    twice.def_abstract_eval(lambda x: x)
    assert float(jax.jit(jax.grad(lambda x: twice.bind(x) ** 2))(3.0)) == 24.0
    assert float(extending.NAMES["lax"]["tanh_p"].bind(jnp.zeros(()))) == 0.0


def test_boxes_and_states_of_transforms():
    box = extending.Ref(jnp.zeros(3))
    box[1] = 5.0
    box[...] = box[...] * 2
    assert box[...].tolist() == [0.0, 10.0, 0.0]
    outside, inside = extending.get_opaque_trace_state(), []
    jax.jit(lambda x: inside.append(extending.get_opaque_trace_state()) or x)(1.0)
    assert outside == extending.get_opaque_trace_state() != inside[0]
    assert extending.valid_jaxtype(1.0) and not extending.valid_jaxtype("a")


@pytest.mark.parametrize("kind", ["key", "uint32"])
def test_types_of_keys_are_told(kind):
    key = jax.random.key(0) if kind == "key" else jax.random.PRNGKey(0)
    assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key) is (kind == "key")
    assert f"{jax.random.key(0)}".startswith("Array((), dtype=key<fry>)")


def test_libraries_find_the_names():
    code = """
from disttrain.compat.jax import install
install(); install()
import jax
from jax.extend import core, linear_util as lu
from jax.extend.core import primitives
from jax.interpreters import ad, batching, mlir, partial_eval
from jax.experimental import hijax, layout
from jax._src import checkify, dtypes, traceback_util
assert jax.__version_info__ == jax.version.__version_info__ and primitives.jit_p
class Own(hijax.HiPrimitive): ...
assert traceback_util.api_boundary(Own) is Own
assert lu.wrap_init(abs, debug_info=None).call_wrapped(-1) == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
