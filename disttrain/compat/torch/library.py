"""``torch.library``: operations that a program defines, and how each runs, is differentiated, and
says its shapes. An operation runs beneath autograd, which knows what is registered of it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

import disttrain as dt

from ..publish import Shim

_defined: dict[str, CustomOpDef] = {}
_BETWEEN = ":" * 2  # a namespace and a name
_EVERYWHERE = "every device"
_KEYS = {"CompositeExplicitAutograd": _EVERYWHERE, "CompositeImplicitAutograd": _EVERYWHERE,
         "default": _EVERYWHERE, "": _EVERYWHERE}  # fmt: skip
_BACKWARD = ("Autograd", "AutogradCPU", "AutogradCUDA")


class CustomOpDef:
    """An operation of a program's own, called as the function that it was made of."""

    def __init__(self, qualname: str, fn: Callable | None = None) -> None:
        self._qualname = qualname
        self._namespace, _, self._name = qualname.partition(_BETWEEN)
        self._kernels: dict[str, Callable] = {}
        self._fake: Callable | None = None
        self._whole: Callable | None = None  # below which it does as it likes with gradients
        self._backward: Callable | None = None
        self._setup: Callable | None = None
        self._signature: inspect.Signature | None = None
        self._function = _function(self)
        self.default = self
        if fn is not None:
            self.__name__, self.__doc__ = fn.__name__, fn.__doc__
            self._add(_EVERYWHERE, fn)
        _defined[qualname] = self
        _publish(self)

    def _add(self, device: str, fn: Callable) -> Callable:
        self._kernels[device] = fn
        if self._signature is None:
            self._signature = inspect.signature(fn)
        return fn

    def register_kernel(self, device_types: Any, func: Callable | None = None, /) -> Any:
        """Run ``func`` on tensors of such devices (None: of all)."""
        names = [device_types] if isinstance(device_types, str) else device_types or [_EVERYWHERE]

        def register(fn: Callable) -> Callable:
            for name in names:
                self._add(_KEYS.get(name, name.lower()), fn)
            return fn

        return register if func is None else register(func)

    def register_fake(self, fn: Callable, /) -> Callable:
        """Let ``fn`` say shapes and types of results: it is called for tensors without data."""
        self._fake = fn
        return fn

    def register_autograd(
        self, backward: Callable, /, *, setup_context: Callable | None = None
    ) -> None:
        """``backward(ctx, *grads)`` gives the gradients of all arguments; ``setup_context(ctx,
        inputs, output)`` keeps what it needs."""
        self._backward, self._setup = backward, setup_context

    def register_vmap(self, func: Callable | None = None, /) -> Any:
        """Taken: under ``vmap`` it runs over one sample after the other."""
        return func if func is not None else lambda fn: fn

    register_torch_dispatch = register_vmap

    def _kernel(self, args: tuple) -> Callable:
        kinds = [t.device.type for t in dt.tree.leaves(list(args)) if isinstance(t, dt.Tensor)]
        if "meta" in kinds and self._fake is not None:
            return self._fake
        for kind in (*kinds, _EVERYWHERE):
            if kind in self._kernels:
                return self._kernels[kind]
        raise NotImplementedError(
            f"{self._qualname}: nothing is registered for {kinds[0] if kinds else 'no'} tensors; "
            "register_kernel, or impl, says what runs there"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._signature is not None:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        if self._whole is not None:
            return self._whole(*args, **kwargs)
        if kwargs:  # keyword-only arguments, of which there are no gradients
            return self._kernel(args)(*args, **kwargs)
        return self._function.apply(*args)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"


def _function(op: CustomOpDef) -> Any:
    """The Function by which ``op`` is called."""

    def forward(*args: Any) -> Any:
        out = op._kernel(args)(*args)
        return tuple(out) if isinstance(out, list) else out

    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        if op._setup is not None:
            op._setup(ctx, inputs, output)

    def backward(ctx: Any, *grads: Any) -> Any:
        if op._backward is None:
            raise RuntimeError(
                f"Trying to backward through {op._qualname} but no autograd formula was "
                "registered. Please use register_autograd to add one."
            )
        return op._backward(ctx, *grads)

    methods = {"forward": forward, "setup_context": setup_context, "backward": backward}
    return type(
        op._name or "custom_op", (dt.autograd.Function,),
        {name: staticmethod(method) for name, method in methods.items()},
    )  # fmt: skip


def _publish(op: CustomOpDef) -> None:
    """Let ``torch.ops.namespace.name`` be the operation."""
    ops = sys.modules.get("torch.ops")
    if ops is None:
        return
    if op._namespace not in vars(ops):
        setattr(ops, op._namespace, Shim(f"torch.ops.{op._namespace}"))
    setattr(getattr(ops, op._namespace), op._name, op)


def _found(op: Any) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if op not in _defined:
        raise RuntimeError(f"{op}: no such operation is defined; custom_op or define does that")
    return _defined[op]


def custom_op(
    name: str, fn: Callable | None = None, /, *, mutates_args: Any = (), device_types: Any = None,
    schema: str | None = None, tags: Any = None,
) -> Any:  # fmt: skip
    """Make a function the operation ``namespace::name``, or a decorator that does."""

    def make(fn: Callable) -> CustomOpDef:
        op = CustomOpDef(name)
        op.__name__, op.__doc__ = fn.__name__, fn.__doc__
        op.register_kernel(device_types, fn)
        return op

    return make if fn is None else make(fn)


def define(qualname: str, schema: str = "", *, lib: Any = None, tags: Any = ()) -> None:
    """Define ``namespace::name``, which runs when ``impl`` has said how."""
    CustomOpDef(qualname)


def impl(
    qualname: str, types: Any = "default", func: Callable | None = None, *, lib: Any = None
) -> Any:
    """Let ``func`` run for tensors of such devices."""
    return _found(qualname).register_kernel(types, func)


def register_fake(op: Any, func: Callable | None = None, /, **how: Any) -> Any:
    """``CustomOpDef.register_fake``, of an operation or by its name."""
    made = _found(op)
    return made.register_fake if func is None else made.register_fake(func)


def register_kernel(op: Any, device_types: Any, func: Callable | None = None, /, **how: Any) -> Any:
    """``CustomOpDef.register_kernel``, of an operation or by its name."""
    return _found(op).register_kernel(device_types, func)


def register_autograd(
    op: Any, backward: Callable, /, *, setup_context: Callable | None = None, lib: Any = None
) -> None:
    """``CustomOpDef.register_autograd``, of an operation or by its name."""
    _found(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op: Any, func: Callable | None = None, /, **how: Any) -> Any:
    """``CustomOpDef.register_vmap``, of an operation or by its name."""
    return _found(op).register_vmap(func)


class Library:
    """Operations of one namespace, defined by what their schemas begin with."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operation, such as ``add_one(Tensor x) -> Tensor``; gives its name."""
        found = re.match(r"\s*([\w.]+)\s*\(", schema)
        if found is None:
            raise RuntimeError(f"Library.define: {schema!r} is no schema: name(arguments) -> type")
        CustomOpDef(f"{self.ns}{_BETWEEN}{found.group(1)}")
        return found.group(1)

    def impl(
        self, op_name: Any, fn: Callable, dispatch_key: str = "", *, with_keyset: bool = False
    ) -> None:
        """Let ``fn`` run for tensors of such devices."""
        op = _found(f"{self.ns}{_BETWEEN}{str(op_name).rpartition(_BETWEEN)[2]}")
        key = dispatch_key or self.dispatch_key
        if key == "Meta":
            op.register_fake(fn)
        elif key in _BACKWARD:
            op._whole = fn
        else:
            op.register_kernel(key, fn)

    def _destroy(self) -> None:
        for name in [n for n in _defined if n.startswith(self.ns + _BETWEEN)]:
            del _defined[name]


def module() -> Shim:
    """``torch.library``."""
    public = (
        CustomOpDef, Library, custom_op, define, impl, register_autograd, register_fake,
        register_kernel, register_vmap,
    )  # fmt: skip
    return Shim("torch.library").give(
        **{one.__name__: one for one in public}, impl_abstract=register_fake, triton_op=custom_op,
        wrap_triton=lambda kernel: kernel,
    )  # fmt: skip
