"""Primitives as expressions of one element: the bits of their own kernels on the device."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends.lang import expr as ex
from disttrain.compile.instruction import Instruction, Var
from disttrain.compile.passes.device_region import DeviceRegion
from disttrain.ops.declare import REGISTRY
from disttrain.ops.device.elements import Element, element_of
from disttrain.ops.device.elementwise import Generated

pytestmark = pytest.mark.usefixtures("double")
GENERATED = sorted(n for n, p in REGISTRY.items() if p.on_device.__class__ is Generated)
F32 = np.dtype(np.float32)


def number(x, dtype):
    return ex.cast(ex.const(float(x)), dtype)


def element(name, *args, **params):
    return element_of(REGISTRY[name], args, params, number)


def of(*shape, dtype=F32, like=None):
    return Element(ex.var("x"), shape, np.dtype(dtype), like)


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.float64])
def test_every_generated_primitive_has_its_own_bits(dtype):
    for name in GENERATED:
        prim = REGISTRY[name]
        arrays = [dt.randn(3, 5).to("cuda", dtype).array for _ in prim.args]
        names = [Var("v", i) for i in range(len(arrays) + 1)]
        with np.errstate(all="ignore"):
            wanted = prim.compute(arrays, {})
            metas = {v: (a.shape, a.dtype) for v, a in zip(names, [*arrays, wanted], strict=True)}
            ins = Instruction(prim, tuple(names[:-1]), {}, (names[-1],))
            one = DeviceRegion([ins], names[:-1], names[-1:], metas)
            one.left = 0
            found = one.primitive().compute(arrays, {})
        assert np.array_equal(found.to_host(), wanted.to_host(), equal_nan=True), name
        assert found.dtype == wanted.dtype, name


def test_shapes_types_and_layouts():
    made = element("add", of(5), of(3, 5, like=1))
    assert (made.shape, made.dtype, made.like) == ((3, 5), F32, 1)
    assert element("add", of(3, 1, like=0), of(1, 5, like=1)).like is None
    assert element("lt", of(3), of(3)).dtype == bool
    assert element("add", of(3, dtype=np.float64), 1.0).dtype == np.float64
    assert element("clone", of(3, like=0)).like is None
    assert element("cast", of(3, like=0), dtype=np.dtype(np.float64)).like == 0


def test_what_has_a_way_of_its_own():
    assert element("pow", of(3), 2).expr == element("square", of(3)).expr
    assert "pow" in str(element("pow", of(3), 0.3).expr)
    cut = element("clip", of(3), low=0.0, high=1.0)
    assert cut.expr == element("clip_above", element("clip_below", of(3), 0.0), 1.0).expr
    mask = of(3, dtype=bool)
    assert element("where", mask, of(3), 0.0).dtype == F32
    assert element("masked_scale", of(3), mask, scale=2.0).dtype == F32


@pytest.mark.parametrize("name, args, params", [
    ("clip", [of(3)], {}),  # the array itself
    ("where", [np.bool_(True), of(3), of(3)], {}),
    ("pow", [of(3), 1j], {}),
    ("cast", [of(3)], {"dtype": np.dtype(np.int64)}),
    ("masked_scale", [of(3), of(3)], {"scale": 2.0}),
    ("add", [of(3, dtype=np.int64), of(3, dtype=np.int64)], {}),
    ("remainder", [of(3), 2.0], {}),
    ("sum", [of(3)], {"dims": (0,), "keepdim": False}),
])  # fmt: skip
def test_what_has_no_expression(name, args, params):
    assert element(name, *args, **params) is None
