"""Kernels on the double: held to the plans that CUDA would run them by, computed by the host's
machine code or by numpy."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from disttrain.backends.cuda.plan import make_plan
from disttrain.backends.device.structs import Operand
from disttrain.backends.lang.interpret import storage
from disttrain.backends.lang.kernel import Array, Kernel
from disttrain.backends.program import Program

from .signatures import Unsupported
from .work import HostUse, Work


@functools.lru_cache(maxsize=4096)
def _program(kernel: Kernel) -> Program:
    return Program(kernel)


@functools.lru_cache(maxsize=4096)
def _check_plan(kernel: Kernel, operands: tuple[Operand, ...]) -> None:
    make_plan(kernel, operands)


def launch(platform: Any, kernel: Kernel, args: tuple) -> None:
    """``kernel`` on arrays and numbers. An array of one element may stand for a number, a number
    for an array that is only read."""
    work = Work(platform, f"kernel {kernel.name}")
    hidden, operands = [], []
    for p, a in zip(kernel.params, args, strict=True):
        is_array = a.__class__ is platform.array_type
        if isinstance(p, Array):
            value = _array(platform, work, p, a)
            operands.append(Operand.of(value))
            hidden.append(value)
        elif is_array and a.size == 1:
            hidden.append(work.hidden(a))
        elif isinstance(a, (int, float, np.generic)) and not is_array:
            hidden.append(float(a))
        else:
            raise HostUse(f"{work.name}: {p.name} is a number, not {type(a).__name__}")
    _check_plan(kernel, tuple(operands))

    def compute() -> None:
        _program(kernel)(*[
            float(v.reshape(-1)[0]) if not isinstance(p, Array) and isinstance(v, np.ndarray) else v
            for p, v in zip(kernel.params, hidden)
        ])  # fmt: skip

    work.run(compute)


def _array(platform: Any, work: Work, p: Array, a: Any) -> np.ndarray:
    if a.__class__ is platform.array_type:
        if p.writes:
            work.opened(a, work.writes)
        return work.hidden(a)
    if p.writes or isinstance(a, np.ndarray) or not isinstance(a, (int, float, np.generic)):
        raise HostUse(f"{work.name}: {p.name} is an array of the device, not {type(a).__name__}")
    return np.asarray(a, storage(p.dtype))


def run_code(platform: Any, code: Any, args: tuple) -> None:
    """A kernel written by hand, by its reference."""
    work = Work(platform, f"code {code.name}")
    arrays, numbers = code.split(args)
    hidden = []
    for i, a in enumerate(arrays):
        if a.__class__ is not platform.array_type:
            raise HostUse(f"{work.name}: argument {i} is {type(a).__name__}, no array of a device")
        if i in code.writes:
            work.opened(a, work.writes)
        hidden.append(work.hidden(a))
    for n in numbers:
        if not isinstance(n, (int, float, np.number)):
            raise HostUse(f"{work.name}: {type(n).__name__} given for a number")
    code.plan([Operand.of(a) for a in hidden])
    work.run(lambda: code.reference(*hidden, *numbers))


def matmul(platform: Any, a: Any, b: Any, out: Any, add: bool) -> Any:
    """Products by the library of matrices: one type, two axes at least; half types are added up in
    float32."""
    work = Work(platform, "matmul")
    x, y = work.hidden(a), work.hidden(b)
    if x.dtype != y.dtype or x.ndim < 2 or y.ndim < 2:
        raise Unsupported(f"matmul: {x.dtype} {x.shape} by {y.dtype} {y.shape}")
    if add and out is None:
        raise Unsupported("matmul: nothing to add to")
    into = None if out is None else work.target(out)
    half = x.dtype.itemsize <= 2 and x.dtype.kind in "fV"
    if into is not None and into.dtype != x.dtype and not (half and into.dtype == np.float32):
        raise Unsupported(f"matmul: results of {x.dtype} into {into.dtype}")
    if into is not None and (np.may_share_memory(into, x) or np.may_share_memory(into, y)):
        raise Unsupported("matmul: the result lies over an argument")

    def compute() -> Any:
        wide = np.float32 if half else x.dtype
        product = np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False))
        if into is None:
            return product.astype(x.dtype, copy=False)
        into[...] = (into + product if add else product).astype(into.dtype, copy=False)
        return None

    found = work.run(compute)
    return found if out is None else out
