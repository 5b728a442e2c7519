"""One process, several devices: a batch is cut, each part goes through a copy of the module on its
device, and the results come together. All of it is recorded, so gradients end in the module's own
parameters. Parts run one after another: devices work while the program goes on.

``distributed.DistributedDataParallel`` has this name here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import context, ops
from ..backends.device.platform import offered, present
from ..core import Tensor
from ..core.types.device import device as Device  # noqa: N812
from ..errors import ConfigError, DeviceError
from ..trace import warn
from .module import Module


def __getattr__(name: str) -> Any:
    if name == "DistributedDataParallel":
        return context.package("distributed").DistributedDataParallel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _devices() -> list[Device]:
    """Those that are there, of the first kind that has any."""
    for kind in offered():
        count = present(kind)[0]
        if count:
            return [Device(kind, i) for i in range(count)]
    return []


def _device(given: Any) -> Device:
    return Device("cpu") if given == -1 else Device(given)


# --- inputs and outputs -----------------------------------------------------------------------
def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """For each device its part of the tensors in ``inputs`` (containers, too), cut along ``dim``;
    what is no tensor goes to all. There are fewer parts than devices where a tensor has fewer."""
    devices = [_device(d) for d in target_gpus]
    if isinstance(inputs, Tensor):
        pieces = ops.chunk(inputs, len(devices), dim)
        return tuple(t.to(d) for t, d in zip(pieces, devices, strict=False))
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):
        return [type(inputs)(*parts) for parts in zip(*_each(inputs, devices, dim), strict=False)]
    if isinstance(inputs, tuple) and inputs:
        return list(zip(*_each(inputs, devices, dim), strict=False))
    if isinstance(inputs, list) and inputs:
        return [list(parts) for parts in zip(*_each(inputs, devices, dim), strict=False)]
    if isinstance(inputs, dict) and inputs:
        parts = zip(*_each(list(inputs.items()), devices, dim), strict=False)
        return [type(inputs)(part) for part in parts]
    return [inputs for _ in devices]


def _each(values: Sequence, devices: list, dim: int) -> list:
    return [scatter(value, devices, dim) for value in values]


def scatter_kwargs(
    inputs: tuple, kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple, tuple]:
    """Arguments and keyword arguments for each device, as many of one as of the other."""
    args = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    count = max(len(args), len(named))
    args += [()] * (count - len(args))
    named += [{} for _ in range(count - len(named))]
    return tuple(args), tuple(named)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Results of several devices (tensors, or the same containers of them) as one on
    ``target_device`` (-1: the CPU), put together along ``dim``; numbers become a vector."""
    first = outputs[0]
    if isinstance(first, Tensor):
        where = _device(target_device)
        moved = [t.to(where) for t in outputs]
        if dim == 0 and all(t.ndim == 0 for t in moved):
            warn("gather: all tensors are scalars; a vector is returned")
            moved = [t.reshape(1) for t in moved]
        return ops.cat(moved, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(out) != len(first) for out in outputs):
            raise ConfigError("gather: All dicts must have the same number of keys")
        return type(first)(
            (key, gather([out[key] for out in outputs], target_device, dim)) for key in first
        )
    parts = [gather(values, target_device, dim) for values in zip(*outputs, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)


# --- modules ----------------------------------------------------------------------------------
def replicate(network: Any, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """A copy of the module for each device, whose tensors are copies of its own; gradients of the
    copies are those of the originals, unless ``detach``."""
    return [_replica(network, _device(d), detach) for d in devices]


def _replica(network: Any, where: Device, detach: bool) -> Any:
    copies: dict[int, Any] = {}
    return _copied(network, where, detach, copies)


def _copied(module: Any, where: Device, detach: bool, copies: dict[int, Any]) -> Any:
    if id(module) in copies:
        return copies[id(module)]
    new = copies[id(module)] = object.__new__(type(module))
    new.__dict__.update(module.__dict__)
    new.__dict__["_parameters"] = type(module._parameters)()
    new.__dict__["_buffers"] = type(module._buffers)()
    new.__dict__["_modules"] = type(module._modules)()
    for name, child in module._modules.items():
        new._modules[name] = None if child is None else _copied(child, where, detach, copies)
    for table, cut in ((module._parameters, detach), (module._buffers, True)):
        for name, t in table.items():
            if t is not None and id(t) not in copies:
                copies[id(t)] = (t.detach() if cut else t).to(where)
            new.__dict__[name] = None if t is None else copies[id(t)]
    return new


def parallel_apply(
    modules: Sequence[Any], inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None, devices: Sequence[Any] | None = None,
) -> list[Any]:  # fmt: skip
    """``modules[i](*inputs[i], **kwargs_tup[i])`` of each."""
    named = kwargs_tup or [{} for _ in modules]
    counts = {len(x) for x in (modules, inputs, named, *((devices,) if devices else ()))}
    if len(counts) != 1:
        raise AssertionError(
            f"parallel_apply: {len(modules)} modules, {len(inputs)} inputs and {len(named)} "
            "sets of keyword arguments given; needed as many of each (and of devices)"
        )
    results = []
    for module, args, kwargs in zip(modules, inputs, named, strict=True):
        args = tuple(args) if isinstance(args, (list, tuple)) else (args,)
        results.append(module(*args, **kwargs))
    return results


def data_parallel(
    module: Any, inputs: Any, device_ids: Sequence[Any] | None = None, output_device: Any = None,
    dim: int = 0, module_kwargs: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """``module(*inputs, **module_kwargs)``, its batch spread over ``device_ids`` (None: all devices
    that are there; the CPU's program where there are none)."""
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    devices = _devices() if device_ids is None else [_device(d) for d in device_ids]
    if not devices:
        return module(*args, **(module_kwargs or {}))
    parts, named = scatter_kwargs(args, module_kwargs, devices, dim)
    if not parts:  # the module takes nothing
        parts, named = ((),), ({},)
    if len(devices) == 1 or len(parts) == 1:
        return module(*parts[0], **named[0])
    copies = replicate(module, devices[: len(parts)])
    outputs = parallel_apply(copies, parts, named, devices[: len(parts)])
    return gather(outputs, devices[0] if output_device is None else output_device, dim)


class DataParallel(Module):
    """``data_parallel`` as a module: its parameters must be on the first of ``device_ids``."""

    def __init__(
        self, module: Any, device_ids: Sequence[Any] | None = None, output_device: Any = None,
        dim: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.module, self.dim = module, dim
        found = _devices() if device_ids is None else [_device(d) for d in device_ids]
        self.device_ids = [d if d.index is None else d.index for d in found]
        self._devices = found
        self.output_device = output_device
        if found and output_device is None:
            self.output_device = self.device_ids[0]
        if len(found) == 1:
            module.to(found[0])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self._devices:
            return self.module(*inputs, **kwargs)
        for t in (*self.module.parameters(), *self.module.buffers()):
            if t.device != self._devices[0]:
                raise DeviceError(
                    "DataParallel: module must have its parameters and buffers on device "
                    f"{self._devices[0]} (device_ids[0]) but found one of them on {t.device}"
                )
        return data_parallel(
            self.module, inputs, self._devices, self.output_device, self.dim, kwargs
        )


__all__ = [
    "DataParallel",
    "DistributedDataParallel",  # noqa: F822  (see __getattr__)
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]
