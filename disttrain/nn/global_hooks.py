"""Hooks of all modules of a rank: around every call, and at every registration.

They run before a module's own hooks of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable

from ..core.node import HookHandle
from . import hooks
from .module import Module


def _around_calls(kind: str, hook: hooks.Hook) -> HookHandle:
    if Module._hooks is None:
        Module._hooks = {}  # from now on calls look whether there are hooks
    return hooks.add_everywhere(kind, hook)


def register_module_forward_pre_hook(hook: Callable) -> HookHandle:
    """``hook(module, args)`` before every forward; what it returns replaces the arguments."""
    return _around_calls(hooks.FORWARD_PRE, hooks.Hook(hook))


def register_module_forward_hook(
    hook: Callable, *, with_kwargs: bool = False, always_call: bool = False
) -> HookHandle:
    """``hook(module, args, output)`` after every forward; what it returns replaces the output."""
    return _around_calls(hooks.FORWARD, hooks.Hook(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable) -> HookHandle:
    """``hook(module, grad_output)`` before every module's gradients are computed."""
    return _around_calls(hooks.BACKWARD_PRE, hooks.Hook(hook))


def register_module_full_backward_hook(hook: Callable) -> HookHandle:
    """``hook(module, grad_input, grad_output)`` when a module's input gradients are there."""
    return _around_calls(hooks.BACKWARD, hooks.Hook(hook))


def register_module_backward_hook(hook: Callable) -> HookHandle:
    """As ``Module.register_backward_hook``, for all modules."""
    return _around_calls(hooks.LAST_NODE, hooks.Hook(hook))


def register_module_parameter_registration_hook(hook: Callable) -> HookHandle:
    """``hook(module, name, parameter)`` at every registration; what it returns is registered."""
    return hooks.add_everywhere(hooks.PARAMETER, hooks.Hook(hook))


def register_module_buffer_registration_hook(hook: Callable) -> HookHandle:
    """``hook(module, name, buffer)`` at every registration; what it returns is registered."""
    return hooks.add_everywhere(hooks.BUFFER, hooks.Hook(hook))


def register_module_module_registration_hook(hook: Callable) -> HookHandle:
    """``hook(module, name, submodule)`` at every registration; what it returns is registered."""
    return hooks.add_everywhere(hooks.MODULE, hooks.Hook(hook))


__all__ = [
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]
