"""Module: registration of parameters, buffers and submodules, and the call.

A call costs one attribute read where the module has no hooks. What a module can do beside is in
``walk`` (look through the tree), ``state`` (state dicts), ``convert`` (types, devices, modes) and
``hooks``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..core import Tensor
from ..core.hooks import HookHandle
from ..errors import ModuleError, ModuleNameError, ShapeError
from . import hooks
from .convert import Convert
from .parameter import Buffer, Parameter
from .state import State
from .walk import Walk

_STORES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


class Module(Walk, State, Convert):
    """A part of a network: parameters, buffers, submodules, and ``forward``.

    Subclasses call ``super().__init__()`` first, assign Parameters and Modules to attributes, and
    define ``forward``. Calling the module runs ``forward`` with the hooks around it.
    """

    training: bool = True
    _hooks: dict[str, Any] | None = None
    _state_hooks: dict[str, Any] | None = None
    _shown_settings: tuple[str, ...] = ()
    # Under PyTorch's names, which programs read and clear.
    _forward_pre_hooks, _forward_hooks = hooks.kept(hooks.FORWARD_PRE), hooks.kept(hooks.FORWARD)
    _backward_pre_hooks = hooks.kept(hooks.BACKWARD_PRE)
    _backward_hooks = hooks.kept(hooks.BACKWARD)

    # Whether the constructor hands its arguments on to the next class (of a mixin).
    call_super_init: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            self._check_arguments(args, kwargs)
        d = self.__dict__
        d["training"] = True
        d["_parameters"] = {}
        d["_buffers"] = {}
        d["_non_persistent_buffers_set"] = set()
        d["_modules"] = {}
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def _check_arguments(self, args: tuple, kwargs: dict) -> None:
        if self.call_super_init:
            return
        where = f"{type(self).__name__}.__init__()"
        if kwargs:
            raise TypeError(f"{where} got an unexpected keyword argument {next(iter(kwargs))!r}")
        raise TypeError(f"{where} takes 1 positional argument but {len(args) + 1} were given")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. To be defined by subclasses."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooks is None:
            return self.forward(*args, **kwargs)
        return hooks.call(self, args, kwargs)

    def compile(self, *args: Any, **words: Any) -> None:
        """From now on calls replay what ``forward`` does, as those of ``dt.compile(self)`` do,
        which takes the same words. A copy, and what is saved, is not compiled."""
        package = importlib.import_module("..compile", __package__)
        self._compiled_call_impl = package.forward_of(self, *args, **words)

    @property
    def _compiled_call_impl(self) -> Any:
        """PyTorch's name of what ``compile`` made; None takes it away."""
        found = self.__dict__.get("forward")
        return found if hasattr(found, "explain") else None

    @_compiled_call_impl.setter
    def _compiled_call_impl(self, made: Any) -> None:
        if made is not None:
            self.__dict__["forward"] = made
        elif self._compiled_call_impl is not None:
            own = self.__dict__.pop("forward").fn.own
            if own is not None:
                self.__dict__["forward"] = own

    def __getstate__(self) -> dict:
        state = self.__dict__.copy()
        made = self._compiled_call_impl
        if made is not None:
            del state["forward"]
        return state

    # --- attributes -------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        d = self.__dict__
        if "_parameters" in d:
            store = d["_parameters"]
            if name in store:
                return store[name]
            store = d["_modules"]
            if name in store:
                return store[name]
            store = d["_buffers"]
            if name in store:
                return store[name]
        elif name in _STORES:
            raise ModuleError(_no_init(self, "its parameters and submodules can be used"))
        if isinstance(getattr(type(self), name, None), property):
            raise ModuleError(
                f"{type(self).__name__}: its property {name!r} read a missing attribute"
            )
        raise ModuleError(
            f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
        )

    def __setattr__(self, name: str, value: Any) -> None:
        d = self.__dict__
        if isinstance(value, Parameter):
            _prepare(self, name, "_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            _prepare(self, name, "_modules")
            _check_name(self, "submodule", name)
            d["_modules"][name] = hooks.registered(self, hooks.MODULE, name, value)
        elif isinstance(value, Buffer):
            _prepare(self, name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        elif "_parameters" not in d:
            object.__setattr__(self, name, value)
        elif name in d["_parameters"]:
            if value is not None:
                raise TypeError(_cannot_assign(self, name, value, "parameter", "nn.Parameter"))
            d["_parameters"][name] = None
        elif name in d["_modules"]:
            if value is not None:
                raise TypeError(_cannot_assign(self, name, value, "child module", "nn.Module"))
            d["_modules"][name] = None
        elif name in d["_buffers"]:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(_cannot_assign(self, name, value, "buffer", "Tensor, nn.Buffer"))
            d["_buffers"][name] = hooks.registered(self, hooks.BUFFER, name, value)
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        for key in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(key, ()):
                del self.__dict__[key][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = set(object.__dir__(self))
        for key in ("_parameters", "_buffers", "_modules"):
            names.update(k for k in self.__dict__.get(key, ()) if not k[:1].isdigit())
        return sorted(names)

    # --- registration -----------------------------------------------------------------------
    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Register ``param`` (None: the name without a value) under ``name``."""
        _new_name(self, "parameter", name, "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(_cannot_assign(self, name, param, "parameter", "nn.Parameter"))
            if not param.is_leaf:
                raise ModuleError(
                    f"{type(self).__name__}: parameter {name!r} was made by "
                    f"{param.grad_fn.name()}; a parameter must be a leaf, so compute it in forward"
                )
            param = hooks.registered(self, hooks.PARAMETER, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a tensor that is state but not trained; ``persistent`` ones are saved."""
        _new_name(self, "buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(_cannot_assign(self, name, tensor, "buffer", "Tensor"))
        self._buffers[name] = hooks.registered(self, hooks.BUFFER, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Register ``module`` as the child ``name``."""
        _new_name(self, "submodule", name, "_modules")
        if module is not None and not isinstance(module, Module):
            raise TypeError(_cannot_assign(self, name, module, "child module", "nn.Module"))
        self._modules[name] = hooks.registered(self, hooks.MODULE, name, module)

    register_module = add_module

    # --- hooks ------------------------------------------------------------------------------
    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """``hook(module, args)`` before forward; what it returns replaces the arguments.

        ``with_kwargs``: ``hook(module, args, kwargs)``, which returns None or both.
        """
        return hooks.add(self, hooks.FORWARD_PRE, hooks.Hook(hook, with_kwargs), prepend)

    def register_forward_hook(
        self,
        hook: Callable,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> HookHandle:
        """``hook(module, args, output)`` after forward; what it returns replaces the output.

        ``with_kwargs``: ``hook(module, args, kwargs, output)``. ``always_call``: also when
        forward raised (with output None).
        """
        record = hooks.Hook(hook, with_kwargs, always_call)
        return hooks.add(self, hooks.FORWARD, record, prepend)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> HookHandle:
        """``hook(module, grad_output)`` before the module's gradients are computed."""
        return hooks.add(self, hooks.BACKWARD_PRE, hooks.Hook(hook), prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> HookHandle:
        """``hook(module, grad_input, grad_output)`` when the gradients of the inputs are there."""
        return hooks.add(self, hooks.BACKWARD, hooks.Hook(hook), prepend)

    def register_backward_hook(self, hook: Callable) -> HookHandle:
        """``hook(module, grad_input, grad_output)`` with the gradients of the operation that made
        the output. Use ``register_full_backward_hook``, which has those of the module itself."""
        return hooks.add(self, hooks.LAST_NODE, hooks.Hook(hook))

    # --- text -------------------------------------------------------------------------------
    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands between the brackets of the module's text: its ``_shown_settings``, of which
        ``inplace`` only where it is set. To be overridden."""
        names = [n for n in self._shown_settings if n != "inplace" or self.inplace]
        return ", ".join([f"{name}={getattr(self, name)!r}" for name in names])

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        below = [f"({k}): {_indent(repr(m))}" for k, m in self._modules.items()]
        if len(lines) == 1 and not below:
            return f"{self._get_name()}({lines[0]})"
        if not lines and not below:
            return f"{self._get_name()}()"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + below) + "\n)"

    def _misfit(self, error: ShapeError, needed: str, *given: Tensor) -> ShapeError:
        """The error of an operation, told by this module: what it is, was given and needs."""
        shapes = ", ".join(str(list(t.shape)) for t in given if isinstance(t, Tensor))
        return ShapeError(f"{self!r}: input of shape {shapes} given; needed {needed}. ({error})")


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")


def _no_init(module: Module, what: str) -> str:
    name = type(module).__name__
    return (
        f"{name}: super().__init__() was not called before {what}; call it first in {name}.__init__"
    )


def _check_name(module: Module, kind: str, name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(
            f"{type(module).__name__}: {kind} name should be a string. Got {type(name).__name__}"
        )
    if not name or "." in name:
        raise ModuleNameError(
            f"{type(module).__name__}: {name!r} cannot name a {kind}; it must not be empty and not "
            "contain a dot"
        )


def _new_name(module: Module, kind: str, name: str, store: str) -> None:
    """Raise unless ``name`` can be registered in ``store``."""
    if store not in module.__dict__:
        raise ModuleError(_no_init(module, f"the {kind} {name!r} was assigned"))
    _check_name(module, kind, name)
    if name not in module.__dict__[store] and _has(module, name):
        raise ModuleNameError(
            f"{type(module).__name__}: attribute {name!r} already exists, so no {kind} can take "
            "that name; choose another, or delete the attribute first"
        )


def _has(module: Module, name: str) -> bool:
    """Whether ``name`` is taken: one that its class lends to another method is not."""
    if name not in getattr(type(module), "__lent__", ()):
        return hasattr(module, name)
    own = module.__dict__
    return hasattr(type(module), name) or any(name in d for d in (own, *(own[s] for s in _STORES)))


def _prepare(module: Module, name: str, store: str) -> None:
    """Take ``name`` away from every other place, so that the new value replaces the old."""
    d = module.__dict__
    if "_parameters" not in d:
        kind = {"_parameters": "parameter", "_modules": "submodule", "_buffers": "buffer"}[store]
        raise ModuleError(_no_init(module, f"the {kind} {name!r} was assigned"))
    d.pop(name, None)
    for key in ("_parameters", "_buffers", "_modules"):
        if key != store:
            d[key].pop(name, None)
    d["_non_persistent_buffers_set"].discard(name)


def _cannot_assign(
    module: Module, name: str, value: Tensor | int | str, kind: str, needed: str
) -> str:
    return (
        f"{type(module).__name__}: cannot assign {type(value).__name__!r} object to {kind} "
        f"{name!r} ({needed} or None required)"
    )
