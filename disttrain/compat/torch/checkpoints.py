"""``torch.utils.checkpoint``, and ``torch.ops`` as far as policies name operations by it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import disttrain as dt

from ...core import checkpoint_sequential as _checkpoint_sequential
from ...core.backward import checkpoint as own
from ...core.backward import selective
from ...trace import warn
from ..publish import Shim

_LOOKS = """sym_size storage_offset sym_stride stride sym_storage_offset size numel detach
is_contiguous is_strides_like_format is_non_overlapping_and_dense device sym_numel dim"""


def _said(name: str, fn: Callable) -> Callable:
    """``fn``, which warns when a program leaves the way of checkpointing open."""

    @functools.wraps(fn)
    def run(*args: object, use_reentrant: bool | None = None, **kwargs: object) -> Any:
        if use_reentrant is None:
            warn(
                f"{name}: the use_reentrant parameter should be passed explicitly; False, which is "
                "recommended, is taken here",
            )
        return fn(*args, use_reentrant=bool(use_reentrant), **kwargs)

    return run


class _Op(selective.Operation):
    """``torch.ops.aten.mm``; ``.default`` and other overloads are the same here."""

    @property
    def default(self) -> _Op:
        return self

    def __getattr__(self, name: str) -> _Op:
        if name.startswith("_"):
            raise AttributeError(name)
        return self


class _Names(Shim):
    """``torch.ops.aten``: every name is an operation, whether there is one or not."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Op(*selective.operation(name).names)


class DefaultDeviceType:
    """Of which kind the devices are whose random numbers are kept besides the CPU's."""

    _kind = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Set it."""
        DefaultDeviceType._kind = device

    @staticmethod
    def get_device_type() -> str:
        """What was set."""
        return DefaultDeviceType._kind


class GraphExecGroup:
    """Calls of backward in this block are of one group. Nothing depends on it here: a part is run
    again once for the tensors that were saved together."""

    def __enter__(self) -> GraphExecGroup:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where none of the inputs requires grad."""
    if not any(t.requires_grad for t in inputs if isinstance(t, dt.Tensor)):
        warn("None of the inputs have requires_grad=True. Gradients will be None")


def detach_variable(inputs: Any) -> tuple:
    """The tensors of a tuple, detached, each requiring grad as before."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got {type(inputs).__name__}")
    return tuple(
        t.detach().requires_grad_(t.requires_grad) if isinstance(t, dt.Tensor) else t
        for t in inputs
    )


def _modules() -> Any:
    kind = DefaultDeviceType.get_device_type()
    return getattr(dt, kind, None), kind


def get_device_states(*args: Any) -> tuple[list[int], list[dt.Tensor]]:
    """The devices that the arguments are on, and where their random numbers are."""
    module, kind = _modules()
    found = {t.device for t in args if isinstance(t, dt.Tensor) and t.device.type == kind}
    numbers = sorted(d.index or 0 for d in found)
    return numbers, [module.get_rng_state(n) for n in numbers]


def set_device_states(
    devices: Iterable[int], states: Iterable[Any], *, device_type: str | None = None
) -> None:
    """Put them back."""
    module = getattr(dt, device_type or DefaultDeviceType.get_device_type(), None)
    for number, state in zip(devices, states, strict=True):
        module.set_rng_state(state, number)  # type: ignore[union-attr]


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Taken, and changes nothing: errors of a second run name the tensors that differ anyway."""
    yield


def noop_context_fn() -> tuple:
    """Two blocks that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def modules() -> dict[str, Shim]:
    """``torch.utils.checkpoint``, ``torch.ops`` and ``torch.ops.aten``."""
    name = "torch.utils.checkpoint"
    functions = (
        check_backward_validity, detach_variable, get_device_states, set_device_states,
        set_checkpoint_debug_enabled, noop_context_fn, DefaultDeviceType, GraphExecGroup,
        selective.CheckpointPolicy, selective.SelectiveCheckpointContext,
        selective.create_selective_checkpoint_contexts, own.set_checkpoint_early_stop,
        own.CheckpointError,
    )  # fmt: skip
    return {
        name: Shim(name).give(
            checkpoint=_said(name, own.checkpoint),
            checkpoint_sequential=_said(f"{name}.checkpoint_sequential", _checkpoint_sequential),
            CheckpointFunction=own._Again,
            SAC_IGNORED_OPS={_Op(n) for n in _LOOKS.split()},
            **{f.__name__: f for f in functions},
        ),
        "torch.ops": Shim("torch.ops").give(
            load_library=lambda path: None,
            loaded_libraries=set(),  # (of compiled operations)
        ),
        "torch.ops.aten": _Names("torch.ops.aten"),
    }
