"""Which arguments of a function are static, and what is made of a call by it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


class Statics:
    """Which arguments of a function are static: by place and by name."""

    def __init__(self, fun: Callable, argnums: Any, argnames: Any) -> None:
        self.fun = fun
        try:
            self.signature: inspect.Signature | None = inspect.signature(fun)
        except (TypeError, ValueError):
            self.signature = None
        self.argnums, self.argnames = self._inferred(_ints(argnums), _strings(argnames))
        self._check()

    def _inferred(self, nums: tuple | None, names: tuple | None) -> tuple[tuple, tuple]:
        """Names for places and places for names, where one of the two is given."""
        if self.signature is None or (nums is None) == (names is None):
            return nums or (), names or ()
        params = list(self.signature.parameters.values())
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        places = [p.name for p in params if p.kind in kinds]
        if names is None:
            count = len(places)
            chosen = [places[n] for n in nums or () if -count <= n < count]
            keyed = [n for n in chosen if self.signature.parameters[n].kind is not kinds[0]]
            return nums or (), tuple(keyed)
        return tuple(i for i, p in enumerate(places) if p in names), names

    def _check(self) -> None:
        if self.signature is None:
            return
        params = self.signature.parameters.values()
        kinds = {p.kind for p in params}
        P = inspect.Parameter
        count = sum(p.kind in (P.POSITIONAL_ONLY, P.POSITIONAL_OR_KEYWORD) for p in params)
        odd = [n for n in self.argnums if not -count <= n < count]
        if odd and P.VAR_POSITIONAL not in kinds:
            raise ValueError(
                f"Jitted function has static_argnums={self.argnums}, but only accepts {count} "
                "positional arguments."
            )
        unknown = set(self.argnames) - {p.name for p in params}
        if unknown and P.VAR_KEYWORD not in kinds:
            raise ValueError(
                f"Jitted function has invalid argnames {unknown} in static_argnames. Function does "
                "not take these args."
            )

    def split(self, args: tuple, kwargs: dict) -> tuple[tuple, dict, tuple]:
        """Arguments that are not static (None in the place of those that are), and a key of those
        that are."""
        if not self.argnums and not self.argnames:
            return args, kwargs, ()
        n = len(args)
        places = {i % n for i in self.argnums if -n <= i < n}
        fixed = [(i, args[i]) for i in sorted(places)]
        fixed += [(name, kwargs[name]) for name in sorted(kwargs) if name in self.argnames]
        for _, value in fixed:
            _check_hash(value)
        dynamic = tuple(None if i in places else a for i, a in enumerate(args))
        others = {k: v for k, v in kwargs.items() if k not in self.argnames}
        return dynamic, others, tuple((k, type(v), v) for k, v in fixed)


def _check_hash(value: Any) -> None:
    try:
        hash(value)
    except TypeError as error:
        raise ValueError(
            "Non-hashable static arguments are not supported. An error occurred while trying to "
            f"hash an object of type {type(value)}, {value}. The error was:\nTypeError: {error}"
        ) from None


def _ints(value: Any) -> tuple | None:
    return None if value is None else (value,) if isinstance(value, int) else tuple(value)


def _strings(value: Any) -> tuple | None:
    return None if value is None else (value,) if isinstance(value, str) else tuple(value)
