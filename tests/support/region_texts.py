"""Regions of captured programs of a device, and the CUDA C of their kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from disttrain.backends.cuda.codegen.emit import function, symbol
from disttrain.backends.cuda.plan import make_plan
from disttrain.backends.device.structs import Operand
from disttrain.backends.lang.interpret import storage
from disttrain.compile.passes import fuse_there
from disttrain.compile.passes.device_region import DeviceRegion
from disttrain.compile.passes.region import Fused


def regions(graph: Any) -> list[DeviceRegion]:
    """Those of a graph after fusion."""
    prims = [ins.prim for ins in fuse_there(graph).instructions]
    return [p.region for p in prims if isinstance(p, Fused)]


def texts(one: DeviceRegion) -> list[tuple[str, str]]:
    """(name, text) of the functions of a region's kernel, on arrays in rows."""
    kernel = one.kernel()
    shapes = [*(m[0] for m in one.metas.values()), *[one.shape] * len(one.outputs)]
    operands = [
        Operand.of(np.empty(shape, storage(p.dtype)))
        for p, shape in zip(kernel.arrays, shapes, strict=True)
    ]
    found = []
    for launch in make_plan(kernel, operands).launches:
        name = symbol(kernel, launch.form)
        found.append((name, function(kernel, launch.form, name)[0]))
    return found
