"""Compiled modules: the module under a second name, whose forward is replayed.

The twin of a module has the module's own attributes (one ``__dict__``: parameters, buffers,
submodules, hooks, ``training``), and a class that differs from the module's by ``forward`` alone.
The module itself is left as it is, and may have several twins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Forward:
    """A module's own forward, as something that can be copied and pickled with the module."""

    def __init__(self, module: Any) -> None:
        self.module = self.__wrapped__ = module
        self.__qualname__ = type(module).__name__
        own = vars(module).get("forward")
        self.own = None if hasattr(own, "explain") else own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.module.__dict__.get("forward")  # one that the program gave to this module alone
        if getattr(own, "__wrapped__", None) is self:  # it is what runs this
            own = self.own
        if own is not None:
            return own(*args, **kwargs)
        return type(self.module).forward(self.module, *args, **kwargs)


class _Run:
    """``forward`` of a twin, before any that the module has for itself: that is what it runs."""

    def __init__(self, run: Callable) -> None:
        self.run = run

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else self.run

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["forward"] = value

    def __delete__(self, instance: Any) -> None:
        del instance.__dict__["forward"]

    def __call__(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)


class Twin:
    """What twins of all classes have in common. ``_orig_mod`` is the module."""

    _orig_mod: Any
    forward: Any

    def __init_subclass__(cls, **kwargs: object) -> None:
        """No subclass that a program made: its classes are not told."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__" and not issubclass(value, Twin):  # the module becomes another
            self._orig_mod.__class__ = value
            value = _class(self._orig_mod, self.forward)
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: object) -> tuple:
        return twin, (self._orig_mod, self.forward)


def original(module: object) -> Any:
    """The module itself, of which ``module`` may be a twin."""
    return module._orig_mod if isinstance(module, Twin) else module


def _class(module: object, run: Callable) -> type:
    kind: Any = type(module)
    own: dict[str, Any] = {
        name: getattr(kind, name) for name in ("__doc__", "__module__", "__qualname__")
    }
    own |= {"forward": _Run(run), "_orig_mod": module}
    meta: Any = type(kind)
    return meta(kind.__name__, (Twin, kind), own)


def twin(module: object, run: Callable) -> Any:
    """A twin of ``module`` whose forward is ``run``."""
    found: Any = object.__new__(_class(module, run))
    object.__setattr__(found, "__dict__", module.__dict__)
    return found
