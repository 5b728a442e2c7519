"""The kernels of ``ops/device`` compiled by NVRTC, without a GPU: nothing spills."""

from __future__ import annotations

import itertools

import pytest

from disttrain.backends.cuda import nvrtc
from disttrain.backends.cuda.codegen.emit import function, symbol, unit
from disttrain.backends.cuda.plan import make_plan
from disttrain.ops.device import reduce, rows, segments
from disttrain.ops.device.table import _cast_kernel
from support.cases.kernel_catalogue import operands

REASON = nvrtc.why_unavailable()


def kernels():
    for dtype in ("float32", "bfloat16"):
        yield reduce._rows(dtype, dtype)
        yield reduce._all(dtype, dtype)
        yield reduce._columns(dtype)
        yield reduce._logsumexp_rows(dtype)
        yield reduce._place_rows(dtype, True)
        yield segments._step(dtype)
        yield rows._normal_kernel(dtype, True, True)
        yield rows._centred_square(dtype)
        yield _cast_kernel(dtype, "int64")
        yield _cast_kernel("bool", dtype)
    for dtype in ("int64", "uint8"):
        yield reduce._place_rows(dtype, False)
        yield reduce._rows(dtype, "int64")
        yield reduce._columns(dtype)


@pytest.mark.skipif(bool(REASON), reason=REASON or "there")
def test_every_kernel_compiles_and_spills_nothing():
    texts, numbers = {}, itertools.count()
    for kernel in kernels():
        for launch in make_plan(kernel, operands(kernel, (300, 768))).launches:
            name = f"{symbol(kernel, launch.form)}_{next(numbers)}"
            texts[name] = function(kernel, launch.form, name)[0]
    made = nvrtc.compile_unit(unit(list(texts.values())), "sm_90")
    assert set(made.functions) == set(texts)
    for name, used in made.functions.items():
        assert (used.spills, used.stack) == (0, 0), (name, used)
