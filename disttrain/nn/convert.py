"""Changing what a module's tensors are (element type, device, memory, requires_grad), in place.

Parameters keep their identity, so optimizers and hooks that know them stay right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..backends.array_kinds import ArrayKind
from ..core import Tensor, no_grad, sharing, wrap
from ..core.annotations import DeviceLike
from ..core.types import dtypes
from ..core.types.device import device as device_type
from ..core.types.device import usable
from ..errors import ConfigError, DeviceError, DTypeError, MetaError
from .parameter import empty, is_lazy, replace_data


def _emptied(t: Tensor, device: DeviceLike | None) -> Tensor:
    """New memory without values, that lies as ``t`` does."""
    array = t.array
    if isinstance(array, ArrayKind) and array.places_others:
        where = usable(device)
        return wrap(
            array.similar(
                lambda shape, kind: empty(shape, dtypes.of(kind), where).array,
                array.shape, array.dtype, where.type == "meta",
            )
        )  # fmt: skip
    return empty(array.shape, t.dtype, device)


class Convert:
    """The part of Module that converts its tensors."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    training: bool

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Replace every parameter's, gradient's and buffer's data by ``fn`` of it."""
        if recurse:
            for child in self.children():  # type: ignore[attr-defined]
                child._apply(fn)
        with no_grad():
            for param in self._parameters.values():
                if param is None:
                    continue
                if is_lazy(param):
                    param.array = fn(param.detach()).array
                    continue
                grad = param.grad
                replace_data(param, fn(param.detach()))
                if grad is not None:
                    replace_data(grad, fn(grad))
            for name, buffer in self._buffers.items():
                if buffer is None:
                    continue
                if is_lazy(buffer):
                    buffer.array = fn(buffer.detach()).array
                else:
                    self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """``to(device)``, ``to(dtype)``, ``to(device, dtype)`` or ``to(tensor)``: move or convert
        all parameters, gradients and buffers in place; returns the module.

        The element type changes floating-point and complex tensors only.
        """
        where, kind, non_blocking = _parse_to(type(self).__name__, args, kwargs)
        layout = kwargs.get("memory_format")

        def convert(t: Tensor) -> Tensor:
            if t.is_meta and where is not None and where.type != "meta":
                raise MetaError(
                    f"{type(self).__name__}.to: Cannot copy out of meta tensor; no data! Please "
                    "use torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving "
                    f"module from meta to a different device. (to_empty(device={str(where)!r}), "
                    "and then initialise or load it)"
                )
            wanted = kind if kind is not None and _inexact(t) else None
            if where is not None and where != t.device:
                t = t.to(where, non_blocking=non_blocking)
            t = t if wanted is None or t.dtype is wanted else t.to(wanted)
            return t if layout is None or t.ndim not in (4, 5) else t.to(memory_format=layout)

        return self._apply(convert)

    def to_empty(self, *, device: DeviceLike | None, recurse: bool = True) -> Any:
        """Give all parameters and buffers new memory without values on ``device``."""
        return self._apply(lambda t: _emptied(t, device), recurse)

    def type(self, dst_type: object) -> Any:
        """Convert all parameters and buffers, whatever their type, to ``dst_type``."""
        kind = dtypes.as_dtype(dst_type)
        return self._apply(lambda t: t.to(kind))

    def share_memory(self) -> Any:
        """Move parameters and buffers to memory that other processes see, too, when the module is
        given to them (by a fork, or as an argument of a process that is started afresh)."""
        tensors = [*self.parameters(), *self.buffers()]  # type: ignore[attr-defined]
        if any(is_lazy(t) for t in tensors):
            raise DeviceError(
                f"{type(self).__name__}: Can't share memory on an uninitialized parameter or "
                "buffer; run one batch through the module first"
            )
        sharing.share(tensors)
        return self

    def float(self) -> Any:
        """Floating-point parameters and buffers become float32."""
        return self._floats(dtypes.float32)

    def double(self) -> Any:
        """Floating-point parameters and buffers become float64."""
        return self._floats(dtypes.float64)

    def half(self) -> Any:
        """Floating-point parameters and buffers become float16."""
        return self._floats(dtypes.float16)

    def bfloat16(self) -> Any:
        """Floating-point parameters and buffers become bfloat16."""
        return self._floats(dtypes.bfloat16)

    def _floats(self, kind: dtypes.dtype) -> Any:
        return self._apply(lambda t: t.to(kind) if t.dtype.is_floating_point else t)

    def cpu(self) -> Any:
        """Move all parameters and buffers to the CPU."""
        return self.to("cpu")

    def cuda(self, device: DeviceLike | None = None) -> Any:
        """Move all parameters and buffers to a GPU (None: the current one)."""
        return self._apply(lambda t: t.cuda(device))

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Freeze (False) or unfreeze all parameters; returns the module."""
        for param in self.parameters():  # type: ignore[attr-defined]
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or (``set_to_none=False``) fill them with zeros."""
        for param in self.parameters():  # type: ignore[attr-defined]
            if set_to_none:
                param.grad = None
            elif param.grad is not None:
                with no_grad():  # the tensor stays: programs and buckets hold it
                    param.grad.detach_().zero_()

    def train(self, mode: bool = True) -> Any:
        """Training mode (dropout drops, batch norm learns) for this module and all below."""
        if not isinstance(mode, bool):
            raise ConfigError(
                f"{type(self).__name__}.train: {mode!r} given; training mode is expected to be "
                "boolean"
            )
        self.training = mode
        for child in self.children():  # type: ignore[attr-defined]
            child.train(mode)
        return self

    def eval(self) -> Any:
        """Evaluation mode for this module and all below."""
        return self.train(False)


def _inexact(t: Tensor) -> bool:
    kind = t.dtype
    return kind.is_floating_point or kind.is_complex


def _parse_to(where: str, args: tuple, kwargs: dict) -> tuple[Any, Any, bool]:
    """The device and the element type asked for by the arguments of ``to``, and whether the host
    shall not wait."""
    known = {"device", "dtype", "non_blocking", "memory_format", "copy", "tensor"}
    if unknown := set(kwargs) - known:
        raise TypeError(
            f"{where}.to: unknown argument {sorted(unknown)[0]!r}; known: {sorted(known)}"
        )
    device, kind = kwargs.get("device"), kwargs.get("dtype")
    for arg in (*args, kwargs.get("tensor")):
        if isinstance(arg, Tensor):
            device, kind = arg.device, arg.dtype
        elif isinstance(arg, (str, device_type)) or arg.__class__ is int:
            device = arg
        elif isinstance(arg, (dtypes.dtype, type)):
            kind = arg
        elif arg is not None and not isinstance(arg, bool):
            raise TypeError(f"{where}.to: {arg!r} given; needed a device, a dtype or a tensor")
    if kind is not None:
        kind = dtypes.as_dtype(kind)
        if not (kind.is_floating_point or kind.is_complex):
            raise DTypeError(
                f"{where}.to: {kind!r} given; a module can only be converted to floating-point or "
                "complex types; .type(dtype) converts every tensor regardless"
            )
    given = next((arg for arg in args if arg.__class__ is bool), False)
    non_blocking = bool(kwargs.get("non_blocking", given))
    return (None if device is None else usable(device)), kind, non_blocking
