"""Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from ...core import Tensor
from ...errors import ConfigError, DimError, ModuleNameError
from ..module import Module, _indent
from ..parameter import Parameter


def _position(name: str, index: int, length: int) -> int:
    """``index`` as a number from the front."""
    i = index.__index__()
    if not -length <= i < length:
        raise DimError(f"{name}: index {i} is out of range; it has {length} entries")
    return i % length


class _Numbered(Module):
    """Children under the names "0", "1", ..."""

    def _renumber(self, modules: Iterable[Module]) -> None:
        self._modules = OrderedDict((str(i), m) for i, m in enumerate(modules))

    def __getitem__(self, index: int | slice) -> Any:
        values = list(self._modules.values())
        if isinstance(index, slice):
            return self._part(index)
        return values[_position(type(self).__name__, index, len(values))]

    def _part(self, index: slice) -> Module:
        return type(self)(list(self._modules.values())[index])

    def __setitem__(self, index: int, module: Module) -> None:
        keys = list(self._modules)
        setattr(self, keys[_position(type(self).__name__, index, len(keys))], module)

    def __delitem__(self, index: int | slice) -> None:
        keys = list(self._modules)
        if not isinstance(index, slice):
            index = _position(type(self).__name__, index, len(keys))
            gone = [keys[index]]
        else:
            gone = keys[index]
        for key in gone:
            del self._modules[key]
        self._renumber(list(self._modules.values()))

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self, module: Module) -> Any:
        """Add at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add several at the end; returns self."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                f"{type(self).__name__}.extend: an iterable of modules is needed, "
                f"{type(modules).__name__} given"
            )
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put before position ``index``; returns self."""
        if not isinstance(module, Module):
            raise TypeError(
                f"{type(self).__name__}.insert: a Module is needed, {type(module).__name__} given"
            )
        values = list(self._modules.values())
        values.insert(index, module)
        self._renumber(values)
        return self

    def pop(self, key: int) -> Module:
        """Take the module at ``key`` out."""
        module = self[key]
        del self[key]
        return module


class Sequential(_Numbered):
    """Modules one after the other: ``Sequential(a, b)`` or ``Sequential(OrderedDict(...))``."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], dict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def _part(self, index: slice) -> Sequential:
        return type(self)(OrderedDict(list(self._modules.items())[index]))

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Self:
        for module in list(other):
            self.append(module)
        return self

    def __mul__(self, times: int) -> Sequential:
        return Sequential(*list(self) * _times(times))

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Self:
        return self.__iadd__(Sequential(*list(self) * (_times(times) - 1)))


def _times(given: int) -> int:
    if not isinstance(given, int):
        raise TypeError(f"Sequential: a module times {type(given).__name__}; needed a whole number")
    if given <= 0:
        raise ConfigError(f"Sequential: {given} times a module; needed 1 or more")
    return given


class ModuleList(_Numbered):
    """A list of modules. Has no forward of its own."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        if not len(self):
            return f"{self._get_name()}()"
        runs: list[list[Any]] = []  # first number, last number, text
        for i, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        lines = [
            f"({a}): {_indent(text)}" if a == b else f"({a}-{b}): {b - a + 1} x {_indent(text)}"
            for a, b, text in runs
        ]
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dict of modules. Has no forward of its own."""

    def __init__(
        self,
        modules: ModuleDict | Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None,
    ) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        try:
            return self._modules[key]
        except KeyError:
            raise ModuleNameError(
                f"ModuleDict: no module {key!r}; it has {', '.join(self._modules) or 'none'}"
            ) from None

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Take the module named ``key`` out."""
        module = self[key]
        del self._modules[key]
        return module

    def keys(self) -> Any:
        return self._modules.keys()

    def items(self) -> Any:
        return self._modules.items()

    def values(self) -> Any:
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add from a mapping or from (name, module) pairs."""
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for key, module in pairs:
            self[key] = module


def _describe(value: Parameter, legacy: bool = False) -> str:
    """A parameter by its type (``legacy``: the old name of that) and size, others by class."""
    if isinstance(value, Tensor):
        kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
        size = "x".join(str(d) for d in value.shape)
        name = value.type() if legacy else value.dtype
        return f"{kind} containing: [{name} of size {size}]"
    return f"Object of type: {type(value).__name__}"


class ParameterList(Module):
    """A list of parameters (tensors become parameters; other values are kept as they are)."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(len(self)))])
        return getattr(self, str(_position("ParameterList", index, self._size)))

    def __setitem__(self, index: int, value: object) -> None:
        i = _position("ParameterList", index, self._size)
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, str(i), value)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(self._size)])

    def append(self, value: Any) -> ParameterList:
        """Add at the end; returns self."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add several at the end; returns self."""
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_describe(v)}" for i, v in enumerate(self))


class ParameterDict(Module):
    """A dict of parameters (tensors become parameters; other values are kept as they are)."""

    def __init__(self, parameters: Mapping[str, Any] | Iterable[Any] | None = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise ModuleNameError(
                f"ParameterDict: no entry {key!r}; it has {', '.join(self._keys) or 'none'}"
            )
        return getattr(self, key)

    def __setitem__(self, key: str, value: object) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, key, value)
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> ParameterDict:
        out = self.copy()
        out.update(other)
        return out

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        out = ParameterDict(other)
        out.update(self)
        return out

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)
        return self

    def keys(self) -> Any:
        return self._keys.keys()

    def values(self) -> list[Any]:
        return [self[k] for k in self._keys]

    def copy(self) -> ParameterDict:
        """Another one, of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: object = None) -> Any:
        """The entry ``key``, made of ``default`` where there is none."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take all entries out."""
        for key in list(self._keys):
            del self[key]

    def popitem(self) -> tuple[str, Any]:
        """Take the last entry out: its key and value."""
        key = next(reversed(self))
        return key, self.pop(key)

    def fromkeys(self, keys: Iterable[str], default: object = None) -> ParameterDict:
        """One with ``default`` under each key."""
        return ParameterDict((k, default) for k in keys)

    def items(self) -> list[tuple[str, Any]]:
        return [(k, self[k]) for k in self._keys]

    def get(self, key: str, default: object = None) -> Any:
        return self[key] if key in self._keys else default

    def pop(self, key: str) -> Any:
        """Take the entry ``key`` out."""
        value = self[key]
        del self._keys[key]
        delattr(self, key)
        return value

    def update(self, parameters: Any) -> None:
        """Add from a mapping or from (name, value) pairs. As in PyTorch, a mapping gives its
        entries by name, unless its order is what it is made for."""
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs = parameters.items()
        else:
            pairs = sorted(parameters.items()) if isinstance(parameters, Mapping) else parameters
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(f"  ({k}): {_describe(v, legacy=True)}" for k, v in self.items())
