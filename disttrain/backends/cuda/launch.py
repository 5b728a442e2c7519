"""Kernels launched by CUDA's driver, on the calling thread's device and stream.

    launcher = Launcher(around)                 # nothing of the driver is touched before a launch
    launcher.launch(kernel, (x, out))           # of the kernel language
    launcher.launch_many(kernel, [(p, g, lr), ...])
    launcher.run_code(code, (out, seed, offset))

What is thought about is kept: plans by the shapes, strides and types of arguments, machine code by
its text and the device's architecture. A launch that was seen before costs a look-up, the packing
of a struct and one call of the driver. Works with ``cuda.bindings`` for CUDA 12 and 13.
"""

from __future__ import annotations

import importlib
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...errors import DeviceError, ShapeError
from ..device.codes.code import Code
from ..device.structs import Operand
from ..lang.kernel import Kernel
from ..lang.scalars import for_arguments
from . import nvrtc
from .codegen.emit import function, symbol, unit
from .faults import launch_advice
from .packing import Layout, StructMemory
from .plan import Plan, make_plan, plan_many, with_scalars

_KEPT = 1 << 14  # plans
_PLAIN_SHARED = 48 << 10  # bytes of shared memory that a kernel gets unasked
_MAJOR, _MINOR = 75, 76  # cudaDevAttrComputeCapabilityMajor, ...Minor
_NO_CONTEXT = (3, 201)  # a thread that the runtime has not met


class Around(Protocol):
    """What a launch needs of the arrays' owner."""

    array_type: type

    def device(self) -> int:
        """The calling thread's device."""

    def capability(self, index: int) -> tuple[int, int]:
        """A device's compute capability."""

    def stream(self) -> int:
        """The handle of the calling thread's stream."""

    def pointer(self, array: object) -> int:
        """Where an array's first element is."""

    def scratch(self, size: int) -> Any:
        """Memory, aligned to 256 bytes, that later work of the stream may have once this object is
        gone; its address is ``ptr``."""

    def enter(self) -> None:
        """Give the calling thread a context on its device."""


class CupyAround:
    """``Around`` for arrays of CuPy."""

    def __init__(self, cupy: Any) -> None:
        self.cuda, self.runtime = cupy.cuda, cupy.cuda.runtime
        self.array_type = cupy.ndarray
        self.device = self.runtime.getDevice
        self.pointer = operator.attrgetter("data.ptr")
        self.scratch = self.cuda.alloc

    def capability(self, index: int) -> tuple[int, int]:
        ask = self.runtime.deviceGetAttribute
        return ask(_MAJOR, index), ask(_MINOR, index)

    def stream(self) -> int:
        return self.cuda.get_current_stream().ptr

    def enter(self) -> None:
        self.runtime.setDevice(self.runtime.getDevice())
        self.runtime.free(0)


class _Launch:
    """One launch, ready but for addresses and numbers."""

    def __init__(self, handle: Any, grid: int, block: int, shared: int, layout: Layout) -> None:
        self.handle, self.grid, self.block, self.shared = handle, grid, block, shared
        self.layout = layout
        self.spare: list[StructMemory] = []


class _Ready:
    """All launches of one call. ``held``: keeps alive what its key names by ``id``."""

    def __init__(self, launches: list[_Launch], scratch: int, name: str, held: object) -> None:
        self.launches, self.scratch, self.name, self.held = launches, scratch, name, held


class Launcher:
    """Launches for one platform. ``driver`` and ``compiler`` are given by tests only."""

    def __init__(
        self, around: Around, driver: Any = None, compiler: Callable[..., Any] | None = None
    ) -> None:
        self.around, self.driver = around, driver
        self.compiler = compiler or nvrtc.compile_unit
        self.array_type: Any = around.array_type
        self.known: dict[tuple, _Ready] = {}
        self.alone: dict[tuple, tuple[list[int], list[int]]] = {}
        self.functions: dict[tuple, Any] = {}
        self.lock = threading.RLock()

    # -- what is launched ----------------------------------------------------------------------

    def launch(self, kernel: Kernel, args: tuple) -> None:
        """One kernel on raw arrays and numbers: ``Platform.launch``."""
        around, array_type = self.around, self.array_type
        key: list[Any] = [id(kernel), around.device()]
        addresses: list[int] = []
        numbers: list[Any] = []
        for a in args:
            if a.__class__ is array_type:
                key += (a.shape, a.strides, a.dtype)
                addresses.append(around.pointer(a))
            else:
                if isinstance(a, np.ndarray) and a.ndim:
                    raise DeviceError(_mixed(kernel, len(addresses) + len(numbers), a))
                key.append(None)
                numbers.append(a)
        ready = self.known.get(tuple(key))
        if ready is None:
            ready = self._keep(tuple(key), self._kernel(kernel, args, key[1]))
        self._go(ready, addresses, numbers)

    def launch_many(self, kernel: Kernel, sets: Sequence[tuple]) -> None:
        """A flat kernel on many sets of arguments that have the same numbers; sets whose arrays lie
        in different orders, or have gaps, take launches of their own."""
        around, array_type = self.around, self.array_type
        key: list[Any] = [id(kernel), around.device(), len(sets)]
        for args in sets:
            for a in args:
                if a.__class__ is array_type:
                    key += (a.shape, a.strides, a.dtype)
        known = tuple(key)
        found = self.alone.get(known)
        if found is None:
            found = self._divided(kernel, sets)
            self.alone[known] = found
        for k in found[1]:
            self.launch(kernel, sets[k])
        if not found[0]:
            return
        several = [[a for a in sets[k] if a.__class__ is array_type] for k in found[0]]
        ready = self.known.get(known)
        if ready is None:
            operands = [[Operand.of(a) for a in one] for one in several]
            made = self._of_plan(
                kernel, plan_many(kernel, operands), key[1], sum(map(len, several))
            )
            ready = self._keep(known, made)
        addresses = [around.pointer(a) for one in several for a in one]
        self._go(ready, addresses, [a for a in sets[0] if a.__class__ is not array_type])

    def run_code(self, code: Code, args: tuple) -> None:
        """A kernel written for devices: ``Platform.run_code``."""
        arrays, numbers = code.split(args)
        around, array_type = self.around, self.array_type
        key: list[Any] = [id(code), around.device()]
        addresses = []
        for a in arrays:
            if a.__class__ is not array_type:
                raise DeviceError(f"{code.name}: {type(a).__name__} where a device array is needed")
            key += (a.shape, a.strides, a.dtype)
            addresses.append(around.pointer(a))
        ready = self.known.get(tuple(key))
        if ready is None:
            ready = self._keep(tuple(key), self._code(code, arrays, key[1]))
        self._go(ready, addresses, list(numbers))

    # -- getting ready ---------------------------------------------------------------------------

    def _keep(self, key: tuple, ready: _Ready) -> _Ready:
        if len(self.known) >= _KEPT:
            self.known.clear()
            self.alone.clear()
        self.known[key] = ready
        return ready

    def _kernel(self, kernel: Kernel, args: tuple, device: int) -> _Ready:
        is_array = [a.__class__ is self.array_type for a in args]
        if len(args) != len(kernel.params):
            needed = len(kernel.params)
            raise TypeError(f"kernel {kernel.name}: {len(args)} arguments, {needed} needed")
        fitted = for_arguments(kernel, is_array)
        operands = [Operand.of(a) for a, there in zip(args, is_array) if there]
        ready = self._of_plan(fitted, make_plan(fitted, operands), device, len(operands))
        ready.held = kernel
        return ready

    def _of_plan(self, kernel: Kernel, plan: Plan, device: int, arrays: int) -> _Ready:
        launches = []
        for one in plan.launches:
            name = symbol(kernel, one.form)
            text, fields = function(kernel, one.form, name)
            handle = self._function(name, (text,), device, 0)
            layout = Layout(fields, with_scalars(kernel, one), arrays, len(kernel.scalars))
            launches.append(_Launch(handle, one.grid, one.block, 0, layout))
        return _Ready(launches, plan.scratch, f"kernel {kernel.name}", kernel)

    def _code(self, code: Code, arrays: tuple, device: int) -> _Ready:
        plan = code.plan([Operand.of(a) for a in arrays])
        launches = []
        for step in plan.launches:
            parts = (*step.helpers, step.text())
            handle = self._function(step.name, parts, device, step.shared)
            layout = Layout(step.fields, step.values, len(arrays), len(code.numbers))
            launches.append(_Launch(handle, step.grid, step.block, step.shared, layout))
        return _Ready(launches, plan.scratch, code.name, code)

    def _divided(self, kernel: Kernel, sets: Sequence[tuple]) -> tuple[list[int], list[int]]:
        """Which sets one launch can serve, and which take one each."""
        together, apart = [], []
        for k, args in enumerate(sets):
            operands = [Operand.of(a) for a in args if a.__class__ is self.array_type]
            try:
                plan_many(kernel, [operands])
                together.append(k)
            except ShapeError:
                apart.append(k)
        return together, apart

    def _function(self, name: str, parts: Sequence[str], device: int, shared: int) -> Any:
        """The driver's function of that name in a program of ``parts``."""
        with self.lock:
            arch = nvrtc.target(self.around.capability(device))
            key = (device, arch, name, parts)
            found = self.functions.get(key)
            if found is None:
                driver = self._driver()
                image = self.compiler(unit(parts), arch, f"{name}.cu").image
                (library,) = self._call("cuLibraryLoadData", image, [], [], 0, [], [], 0)
                (made,) = self._call("cuLibraryGetKernel", library, name.encode())
                if shared > _PLAIN_SHARED:
                    attribute = driver.CUfunction_attribute
                    most = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                    where = driver.CUdevice(device)
                    self._call("cuKernelSetAttribute", most, shared, made, where)
                found = self.functions[key] = (driver.CUfunction(int(made)), library)
            return found[0]

    def _driver(self) -> Any:
        if self.driver is None:
            try:
                self.driver = importlib.import_module("cuda.bindings.driver")
            except ImportError as error:
                raise DeviceError(
                    f"cuda: kernels are launched by the package cuda-bindings, which is not "
                    f"installed ({error}); pip install 'disttrain[cuda13]' (or cuda12)"
                ) from None
        return self.driver

    def _call(self, what: str, *args: Any) -> tuple:
        status, *results = getattr(self._driver(), what)(*args)
        if status:
            raise DeviceError(f"cuda: {what}: {self._told(status)}")
        return tuple(results)

    # -- going -----------------------------------------------------------------------------------

    def _go(self, ready: _Ready, addresses: list[int], numbers: list[Any]) -> None:
        launches = ready.launches
        if not launches:
            return
        stream, memory, base = self.around.stream(), None, 0
        if ready.scratch:
            memory = self.around.scratch(ready.scratch)
            base = memory.ptr
        launch = self.driver.cuLaunchKernel
        for one in launches:
            try:
                room = one.spare.pop()
            except IndexError:
                room = StructMemory(one.layout.size)
            one.layout.write(room, addresses, numbers, base)
            (status,) = launch(
                one.handle, one.grid, 1, 1, one.block, 1, 1, one.shared, stream, room.address, 0
            )
            if status:
                status = self._once_more(status, one, stream, room)
            one.spare.append(room)
            if status:
                raise DeviceError(self._failed(status, ready, one))
        del memory

    def _once_more(self, status: Any, one: _Launch, stream: int, room: StructMemory) -> Any:
        """A thread that had no context has one now."""
        if int(status) not in _NO_CONTEXT:
            return status
        self.around.enter()
        (status,) = self.driver.cuLaunchKernel(
            one.handle, one.grid, 1, 1, one.block, 1, 1, one.shared, stream, room.address, 0
        )
        return status

    def _failed(self, status: object, ready: _Ready, one: _Launch) -> str:
        key = next((k for k, r in self.known.items() if r is ready), ())
        shapes = ", ".join(f"{k} {key[i + 2]}" for i, k in enumerate(key) if _is_shape(key, i))
        where = (
            f"{ready.name} on {shapes or 'its arrays'}, {one.grid} blocks of {one.block} threads"
        )
        return f"cuda: {where}: {self._told(status)}"

    def _told(self, status: Any) -> str:
        """The driver's name of an error, its description, and what to do."""
        name, text = f"error {int(status)}", ""
        for what in ("cuGetErrorName", "cuGetErrorString"):
            failed, found = getattr(self._driver(), what)(status)
            if not failed and found is not None:
                told = found.decode() if isinstance(found, bytes) else str(found)
                name, text = (told, text) if what == "cuGetErrorName" else (name, f" ({told})")
        advice = launch_advice(int(status))
        return f"{name}{text}" + (f"; {advice}" if advice else "")


def _mixed(kernel: Kernel, place: int, array: np.ndarray) -> str:
    return (
        f"kernel {kernel.name}: {kernel.params[place].name}, of shape {array.shape}, is on the cpu "
        "and others are on a device; all must be on one"
    )


def _is_shape(key: tuple, i: int) -> bool:
    later = key[i + 1 : i + 3]
    return isinstance(key[i], tuple) and len(later) == 2 and isinstance(later[0], tuple)


__all__ = ["Around", "CupyAround", "Launcher"]
