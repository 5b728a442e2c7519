"""Walking a module and its submodules: named parameters, buffers, modules; lookup by path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..core import Tensor
from ..errors import ModuleError


class Walk:
    """The part of Module that looks through the tree of modules."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]

    def named_modules(
        self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """This module and all below it, depth first, with dotted names; each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def modules(self) -> Iterator[Any]:
        """This module and all below it, each once."""
        for _, module in self.named_modules():
            yield module

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The modules directly below, with names; each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Any]:
        """The modules directly below, each once."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, members: Callable, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Tensor]]:
        seen = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, value in members(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Parameters with dotted names, in order of registration; shared ones once."""
        yield from self._named_members(
            lambda m: m._parameters.items(), prefix, recurse, remove_duplicate
        )

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Parameters, in order of registration; shared ones once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with dotted names, persistent or not."""
        yield from self._named_members(
            lambda m: m._buffers.items(), prefix, recurse, remove_duplicate
        )

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers, persistent or not."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Any:
        """The module at a dotted path; ``""`` is this one. ``ModuleError`` when there is none."""
        module: Any = self
        for name in target.split(".") if target else ():
            found = module._modules.get(name)
            if found is None:
                raise ModuleError(
                    f"{type(self).__name__}.get_submodule({target!r}): "
                    f"{type(module).__name__} has no submodule {name!r}; "
                    f"it has {_names(module._modules)}"
                )
            module = found
        return module

    def set_submodule(self, target: str, module: object) -> None:
        """Put ``module`` at a dotted path whose parent exists."""
        path, _, name = target.rpartition(".")
        if not name:
            raise ModuleError(f"{type(self).__name__}.set_submodule: the path is empty")
        self.get_submodule(path).add_module(name, module)

    def get_parameter(self, target: str) -> Any:
        """The parameter at a dotted path. ``ModuleError`` when there is none."""
        return self._get_member("_parameters", "parameter", target)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path. ``ModuleError`` when there is none."""
        return self._get_member("_buffers", "buffer", target)

    def _get_member(self, store: str, kind: str, target: str) -> Any:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        value = getattr(owner, store).get(name)
        if value is None:
            raise ModuleError(
                f"{type(self).__name__}.get_{kind}({target!r}): {type(owner).__name__} has no "
                f"{kind} {name!r}; it has {_names(getattr(owner, store))}"
            )
        return value

    def apply(self, fn: Callable[[Any], None]) -> Any:
        """Call ``fn`` on every submodule, children first, then on this module; returns it."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self


def _names(store: dict) -> str:
    return ", ".join(store) or "none"
