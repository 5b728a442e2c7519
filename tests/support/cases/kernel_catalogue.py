"""Every kernel of devices: those of ``backends/fused``, and the expressions of primitives."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from disttrain.backends import fused
from disttrain.backends.cuda.codegen.layout import Operand, dense
from disttrain.backends.family import Family
from disttrain.backends.fused.updates import Update
from disttrain.backends.lang.expr import var
from disttrain.backends.lang.kernel import ITEMSIZE, Array, elementwise
from disttrain.ops.declare import REGISTRY


def fused_kernels(dtype):
    """The kernels of all families for arrays of that type, by a name of their own."""
    found = {}
    for info in pkgutil.walk_packages(fused.__path__, f"{fused.__name__}."):
        module, short = importlib.import_module(info.name), info.name.rpartition(".")[2]
        for name, value in vars(module).items():
            if name.endswith("_ON_HOST"):
                continue
            for key, family in _families(value):
                kernel = family.make(dtype)
                found[f"{short}.{name}{key}"] = kernel
    return found


def _families(value):
    if isinstance(value, Family):
        yield "", value
    elif isinstance(value, Update):
        yield "", value.programs
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from ((f"[{key}]{more}", family) for more, family in _families(inner))
    elif inspect.isfunction(value):
        inside = inspect.getclosurevars(value).nonlocals.get("family")
        if isinstance(inside, Family):
            yield "", inside


def primitive_kernels(dtype):
    """What each elementwise primitive computes, as a kernel."""
    found = {}
    for name, prim in REGISTRY.items():
        if prim.expr and prim.elementwise:
            params = tuple(Array(a, dtype) for a in prim.args)
            value = prim.expr(*map(var, prim.args))
            found[name] = elementwise(name, value, params, dtype)
    return found


def operands(kernel, shape, layout="plain"):
    """Arrays for ``kernel`` as plans see them: ``plain`` (contiguous), ``strided`` (each second
    column of each second row), ``far`` (as strided, with so much between rows that positions need
    64 bits)."""
    out = []
    for p in kernel.arrays:
        size = ITEMSIZE[p.dtype]
        there = {"full": shape, "row": shape[:-1], "col": shape[-1:], "one": (1,)}[p.space]
        strides = dense(there, size)
        if layout != "plain" and p.space != "one":
            apart = 1 << 31 if layout == "far" else 4 * shape[-1] * size
            strides = {"full": (apart, 2 * size), "row": (apart,), "col": (2 * size,)}[p.space]
        out.append(Operand(there, strides, p.dtype))
    return out
