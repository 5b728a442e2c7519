"""Parametrizations: a parameter or buffer as a function of others.

``register_parametrization(linear, "weight", Symmetric())`` makes ``linear.weight`` what
``Symmetric()`` computes of ``linear.parametrizations.weight.original``, anew at every reading
(within ``cached()``: once). The module's class is replaced by one of its own, derived from it, on
which the tensor is a property.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...context import thread
from ...core import Tensor, no_grad
from ...core.annotations import DTypeLike
from ...errors import ConfigError, ModuleError, StateDictError
from ..module import Module
from ..modules.containers import ModuleDict, ModuleList
from ..parameter import Parameter, replace_data

_SLOT = "nn.utils.parametrize"  # where a rank keeps its cache


class _Cache:
    """Tensors computed within ``cached()``, by module and name."""

    def __init__(self) -> None:
        self.depth = 0
        self.tensors: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Within it every parametrized tensor is computed once, however often it is read."""
    cache = thread.rank.slot(_SLOT, _Cache)
    cache.depth += 1
    try:
        yield
    finally:
        cache.depth -= 1
        if not cache.depth:
            cache.tensors = {}


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _refuse(text: str) -> ConfigError:
    return ConfigError(f"parametrize: {text}")


def _check_result(out: Tensor | int, dtype: DTypeLike | None, shape: object, flag: str) -> None:
    """Raise unless ``out`` may stand in the place of a tensor of that type and shape."""
    if not isinstance(out, Tensor):
        raise _refuse(f"A parametrization must return a tensor. Got {type(out).__name__}.")
    for name, a, b in (("dtype", out.dtype, dtype), ("shape", out.shape, shape)):
        if a != b:
            raise _refuse(
                f"Registering a parametrization may not change the {name} of the tensor, unless "
                f"{flag} flag is enabled.\nunparametrized {name}: {b}\nparametrized {name}: {a}"
            )


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, in order, and the ``original`` that they begin with
    (``original0``, ``original1`` ... where the first one takes several tensors)."""

    original: Any

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if not modules:
            raise _refuse("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            new = self._undone(original)
        if not isinstance(new, (Tensor, Sequence)):
            raise _refuse(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        shape, dtype = original.shape, original.dtype
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if isinstance(new, Tensor) else len(new)
        if isinstance(new, Tensor):
            self._keep_one(original, new)
        else:
            self._keep_several(original, new)
        if not unsafe:
            _check_result(self(), dtype, shape, "`unsafe`")

    def _undone(self, value: Tensor) -> Any:
        """What the parametrizations would have to begin with to give ``value``, as far as they
        can tell."""
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                try:
                    value = module.right_inverse(value)
                except NotImplementedError:
                    continue
        return value

    def _keep_one(self, original: Tensor, new: Tensor) -> None:
        for name, a, b in (
            ("dtype", new.dtype, original.dtype),
            ("device", new.device, original.device),
        ):
            if a != b:
                raise _refuse(
                    f"When `right_inverse` outputs one tensor, it may not change the {name}.\n"
                    f"original.{name}: {b}\nright_inverse(original).{name}: {a}"
                )
        replace_data(original, new)
        _register(self, "original", original)

    def _keep_several(self, original: Parameter, new: Sequence[Any]) -> None:
        for i, t in enumerate(new):
            if not isinstance(t, Tensor):
                raise _refuse(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                    f"tuple...). Got element {i} of the sequence with type {type(t).__name__}."
                )
            one: Any = t
            if isinstance(original, Parameter):
                one = Parameter(t.detach(), original.requires_grad)
            one.requires_grad_(original.requires_grad)
            _register(self, f"original{i}", one)

    def right_inverse(self, value: object) -> None:
        """Change the originals so that the tensor becomes ``value``."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise StateDictError(
                        f"parametrization {type(module).__name__} does not implement "
                        "right_inverse, so its tensor cannot be assigned to"
                    )
                value = module.right_inverse(value)
            if self.is_tensor:
                if not isinstance(value, Tensor):
                    raise _refuse(
                        f"`right_inverse` should return a tensor. Got {type(value).__name__}"
                    )
                self._write("original", value)
                return
            if not isinstance(value, Sequence):
                raise _refuse(
                    "'right_inverse' must return a sequence of tensors. Got "
                    f"{type(value).__name__}."
                )
            if len(value) != self.ntensors:
                raise _refuse(
                    "'right_inverse' must return a sequence of tensors of length "
                    f"{self.ntensors}. Got a sequence of length {len(value)}."
                )
            for i, t in enumerate(value):
                if not isinstance(t, Tensor):
                    raise _refuse(
                        "'right_inverse' must return a sequence of tensors. Got element "
                        f"{i} of type {type(t).__name__}."
                    )
                self._write(f"original{i}", t)

    def _write(self, name: str, value: Tensor) -> None:
        held = getattr(self, name)
        if value.dtype != held.dtype:
            which = "The tensor" if name == "original" else f"Tensor {name[8:]}"
            raise _refuse(
                f"{which} returned by `right_inverse` has dtype {value.dtype} while `{name}` has "
                f"dtype {held.dtype}"
            )
        replace_data(held, value)

    def forward(self) -> Any:
        first, *rest = self
        if self.is_tensor:
            x = first(self.original)
        else:
            x = first(*[getattr(self, f"original{i}") for i in range(self.ntensors)])
        for module in rest:
            x = module(x)
        return x


def _give_class_of_its_own(module: Module) -> None:
    cls = type(module)

    def getstate(self: Module) -> Any:
        raise StateDictError(
            "Serialization of parametrized modules is only supported through state_dict(): save "
            "that, build the module, parametrize it again and load"
        )

    def deepcopy(self: Module, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        own = type(self)
        own = type(own.__name__, own.__bases__, dict(vars(own)))  # not to share properties
        replica = memo[id(self)] = own.__new__(own)
        replica.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return replica

    members: dict[str, Any] = {"__getstate__": getstate}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _add_property(module: Module, name: str) -> None:
    def get(self: Any) -> Any:
        parametrization = self.parametrizations[name]
        cache = thread.rank.slots.get(_SLOT)
        if cache is None or not cache.depth:
            return parametrization()
        key = (id(self), name)
        if key not in cache.tensors:
            cache.tensors[key] = parametrization()
        return cache.tensors[key]

    def put(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, put))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Any, *, unsafe: bool = False
) -> Any:
    """Let ``parametrization`` compute the parameter or buffer ``tensor_name`` of ``module``.

    A second one computes it from what the first gives. ``right_inverse``, where it has one, says
    what to begin with for a given value: it makes the tensor assignable, and its present value
    goes through it. ``unsafe``: type and shape may change. Returns ``module``.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_on_top(module, tensor_name, parametrization)
        module.parametrizations[tensor_name].append(parametrization)
        module.parametrizations[tensor_name].unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _give_class_of_its_own(module)
            module.parametrizations = ModuleDict()
        _add_property(module, tensor_name)
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise _refuse(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def _check_on_top(module: Module, name: str, parametrization: Module) -> None:
    before = getattr(module, name)
    after = parametrization(before)
    _check_result(after, before.dtype, before.shape, "the `unsafe`")
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise _refuse(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}"
        )
    for what, a, b in (("dtype", back.dtype, before.dtype), ("shape", back.shape, before.shape)):
        if a != b:
            raise _refuse(
                f"The tensor returned by parametrization.right_inverse must have the same {what} "
                f"as module.{name}, unless the `unsafe` flag is enabled.\nmodule.{name}.{what}: "
                f"{b}\nreturned {what}: {a}"
            )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the tensor (None: any tensor) of the module is computed by parametrizations."""
    parametrizations = module.__dict__.get("_modules", {}).get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Any:
    """Make ``tensor_name`` a parameter or buffer again: with the value it has, or (with
    ``leave_parametrized=False``) that of its original. Returns ``module``."""
    if not is_parametrized(module, tensor_name):
        raise _refuse(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    if parametrizations.is_tensor:
        original = parametrizations.original
        if leave_parametrized:
            with no_grad():
                replace_data(original, getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise _refuse(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before any of its tensors was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Any, to_module: Any, tensor_name: str | None = None
) -> Any:
    """Parametrize ``to_module`` as ``from_module`` is, with the same originals and the same
    parametrizations. Returns ``to_module``."""
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        if not is_parametrized(from_module, name):
            raise ModuleError(f"{type(from_module).__name__}: {name!r} is not parametrized")
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        source = from_module.parametrizations[name]
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        for key, value in {**source._parameters, **source._buffers}.items():
            setattr(to_module.parametrizations[name], key, value)
    return to_module


__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]
