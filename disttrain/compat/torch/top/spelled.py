"""What programs import from ``torch.nn.functional``, ``torch.nn.utils``, ``torch.autograd`` and
``torch.autograd.graph`` besides functions of ours: helpers of PyTorch's own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import disttrain as dt

from ....core.backward.function import Function
from ....trace import warn


class _AnySize:
    """``BroadcastingList2[int]``: an annotation."""

    def __getitem__(self, types: Any) -> None:
        return None


def assert_int_or_pair(arg: Any, arg_name: str, message: str) -> None:
    """That ``arg`` is a number or two."""
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Callable, if_false: Callable,
    module_name: str, func_name: str,
) -> Callable:  # fmt: skip
    """One function of two: which one says an argument."""

    def run(*args: Any, **kwargs: Any) -> Any:
        given = args[arg_index] if arg_index < len(args) else default
        return (if_true if kwargs.get(arg_name, given) else if_false)(*args, **kwargs)

    run.__doc__ = if_true.__doc__ or if_false.__doc__
    run.__module__, run.__name__ = module_name or run.__module__, func_name or run.__name__
    return run


def _overriding(values: Any) -> list[Any]:
    own = getattr(dt.Tensor, "__torch_function__", None)
    return [
        v for v in values
        if type(v) is not dt.Tensor and getattr(v, "__torch_function__", own) is not own
    ]  # fmt: skip


def has_torch_function(relevant_args: Any) -> bool:
    """Whether one of them brings a ``__torch_function__`` of its own."""
    return bool(_overriding(relevant_args))


def handle_torch_function(
    public_api: Callable, relevant_args: Any, *args: Any, **kwargs: Any
) -> Any:
    """What the first of them that takes it makes of the call."""
    types = tuple({type(v) for v in _overriding(relevant_args)})
    for value in _overriding(relevant_args):
        result = value.__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(f"no implementation found for '{public_api.__module__}.{public_api.__name__}'")


def functional() -> dict[str, Any]:
    """For ``torch.nn.functional``."""
    return {
        **{f"BroadcastingList{n}": _AnySize() for n in (1, 2, 3)}, "Tensor": dt.Tensor,
        "GRID_SAMPLE_INTERPOLATION_MODES": {"bilinear": 0, "nearest": 1, "bicubic": 2},
        "GRID_SAMPLE_PADDING_MODES": {"zeros": 0, "border": 1, "reflection": 2},
        "TYPE_CHECKING": False, "assert_int_or_pair": assert_int_or_pair,
        "boolean_dispatch": boolean_dispatch, "handle_torch_function": handle_torch_function,
        "has_torch_function": has_torch_function,
        "has_torch_function_unary": lambda value: has_torch_function((value,)),
        "has_torch_function_variadic": lambda *values: has_torch_function(values),
        "reproducibility_notes": {}, "sparse_support_notes": {}, "tf32_notes": {},
    }  # fmt: skip


def _converted(kinds: Any) -> Callable[..., Any]:
    def convert(module: Any, memory_format: Any) -> Any:
        for part in module.modules():
            if isinstance(part, kinds):
                part.weight.data = part.weight.detach().clone(memory_format=memory_format)
        return module

    return convert


def utils() -> dict[str, Any]:
    """For ``torch.nn.utils``."""
    nn = dt.nn

    def clip_grad_norm(*args: Any, **kwargs: Any) -> Any:
        warn("nn.utils.clip_grad_norm is now deprecated in favor of nn.utils.clip_grad_norm_")
        return nn.utils.clip_grad_norm_(*args, **kwargs)

    of_images = (nn.Conv2d, nn.ConvTranspose2d)
    of_volumes = (nn.Conv3d, nn.ConvTranspose3d)
    return {
        "clip_grad_norm": clip_grad_norm,
        "convert_conv2d_weight_memory_format": _converted(of_images),
        "convert_conv3d_weight_memory_format": _converted((*of_images, *of_volumes)),
    }


class NestedIOFunction(Function):
    """A Function of containers; its methods are ``forward_extended`` and ``backward_extended`` in
    PyTorch, which keeps it for old programs. Use ``Function``."""


class _Switch:
    """A setting that is taken and changes nothing here, also as a block."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


def autograd() -> dict[str, Any]:
    """For ``torch.autograd``: gradients lie as their leaves do, or as they come."""
    return {"NestedIOFunction": NestedIOFunction, "enforce_grad_layout_policy": _Switch}


def graph() -> dict[str, Any]:
    """For ``torch.autograd.graph``: streams are waited for wherever gradients meet."""
    return {
        "region_activation_memory_budget": _Switch, "set_override_stale_capture_stream": _Switch,
        "set_warn_on_accumulate_grad_stream_mismatch": _Switch,
    }  # fmt: skip
