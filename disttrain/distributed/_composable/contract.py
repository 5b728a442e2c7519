"""Functions that give a module a way of training without wrapping it: names stay as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ModuleNameError
from ...nn import Module

STATES, NAMES = "_composable_states", "_composable_names"


class State:
    """What a composable function keeps of a module."""


class RegistryItem:
    """Stands for one application of a composable function."""


def contract(state_cls: type = State) -> Callable[[Callable], Any]:
    """Decorates ``fn(module_or_modules, ...)``: applied to a module, it gets a state of its own
    (``fn.state(module)``), may be applied once, and must leave all names of parameters, buffers and
    modules, in their order. Of several modules, those that are inside no other one get the state.
    """

    def decorate(fn: Callable) -> Any:
        @functools.wraps(fn)
        def wrapper(module: Module, *args: int, **kwargs: object) -> Any:
            roots = _roots(module)
            state, item = state_cls(), RegistryItem()
            for m in roots:
                _apply(fn, m, state, item)
            before = [_names(m) for m in roots]
            updated = fn(module, *args, **kwargs)
            updated = module if updated is None else updated
            after = [_names(m) for m in _roots(updated)]
            if len(before) != len(after):
                raise AssertionError(
                    f"{fn.__name__} should return the same number of modules as input modules: "
                    f"{len(before)} were given, {len(after)} came back"
                )
            for old, new in zip(before, after, strict=True):
                _compare(fn.__name__, old, new)
            return updated

        wrapper.state = lambda module: module.__dict__.get(STATES, {}).get(fn)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _roots(given: Module | Sequence[Module]) -> list[Module]:
    if isinstance(given, Module):
        return [given]
    inside = {id(m) for top in given for m in list(top.modules())[1:]}
    return [m for m in given if id(m) not in inside]


def _apply(fn: Callable, module: Module, state: object, item: RegistryItem) -> None:
    states = module.__dict__.setdefault(STATES, {})
    names = module.__dict__.setdefault(NAMES, {})
    if fn in states or fn.__name__ in names:
        raise AssertionError(
            "Each distinct composable distributed API can only be applied to a module once. "
            f"{fn.__name__} has already been applied to the following module:\n{module}"
        )
    states[fn], names[fn.__name__] = state, item


def _names(module: Module) -> dict[str, list[str]]:
    return {
        "parameters": [n for n, _ in module.named_parameters()],
        "buffers": [n for n, _ in module.named_buffers()],
        "modules": [n for n, _ in module.named_modules()],
    }


def _compare(name: str, old: dict[str, list[str]], new: dict[str, list[str]]) -> None:
    for kind, before in old.items():
        after = new[kind]
        if before == after:
            continue
        gone, come = sorted(set(before) - set(after)), sorted(set(after) - set(before))
        what = f"cannot modify FQNs: gone are {gone}, new are {come}"
        if not gone and not come:
            what = f"cannot modify the order of FQNs: {before} became {after}"
        raise ModuleNameError(
            f"Checking {kind}: Composable distributed API implementations {what} ({name})"
        )


def _get_registry(module: Module) -> dict[str, RegistryItem] | None:
    """The composable functions applied to ``module``, by name; None where there was none."""
    return module.__dict__.get(NAMES)


__all__ = ["RegistryItem", "State", "contract"]
