"""Functions of the host inside programs, for trees: calling back, printing."""

from __future__ import annotations

import string
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...core.tensor import wrap as tensor_of
from ..callbacks import METHODS, Callback
from ..structured_bodies import Aval, Border
from .flat import check_callable


class _Arguments:
    """A tree of arguments, whose values are handed over as they are when the program runs.
    ``static``: what is no value is handed over as it is."""

    def __init__(self, border: Border, args: tuple, kwargs: dict, static: bool = False) -> None:
        self.border = border
        leaves, self.form = border.registry.flatten((args, kwargs))
        found = [self._value(x, static) for x in leaves]
        self.tensors = [x for x in found if isinstance(x, Tensor)]
        self.leaves = [Tensor if isinstance(x, Tensor) else x for x in found]

    def taken(self) -> list[Tensor]:
        """The values, which are not kept: a program outlives what it was staged with."""
        found, self.tensors = self.tensors, []
        return found

    def _value(self, x: Any, static: bool) -> Any:
        try:
            return self.border.take(x)[0]
        except TypeError:
            if static:
                return x
            raise

    def now(self, arrays: tuple, plain: bool = False) -> tuple[tuple, dict]:
        """(args, kwargs) with these arrays. ``plain``: as numpy's."""
        left = iter([np.asarray(a) for a in arrays])
        give = (lambda a: a[()]) if plain else lambda a: self.border.give(tensor_of(a), False)
        made = [give(next(left)) if x is Tensor else x for x in self.leaves]
        found: tuple[tuple, dict] = self.form.build(iter(made))
        return found


class Callbacks:
    """The functions, for trees with what ``border`` makes of tensors. ``aval``: of a leaf that says
    what a callback gives; ``failure``: the class of errors where one fails."""

    def __init__(
        self, border: Border, aval: Callable[[Any], Aval], failure: type[Exception]
    ) -> None:
        self.border, self.aval, self.failure = border, aval, failure

    def pure_callback(
        self, callback: Callable, result_shape_dtypes: Any, *args: Any, sharding: Any = None,
        vmap_method: str | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """What ``callback`` gives for arrays; it may be called more often, or less, than it
        seems."""
        if vmap_method is not None and vmap_method not in METHODS:
            raise ValueError(
                f"vmap_method must be on of the allowed methods {list(METHODS)}, but got: "
                f"{vmap_method}"
            )
        return self._called(
            "pure_callback", callback, result_shape_dtypes, args, kwargs, method=vmap_method,
            no_derivative=self._no_derivative("Pure"),
            no_batch=NotImplementedError(
                "vmap is only supported for the pure_callback primitive when vmap_method is one of "
                "'sequential', 'sequential_unrolled', 'expand_dims', 'broadcast_all', or "
                f"'legacy_vectorized'. Got vmap_method={vmap_method}."
            ),
        )  # fmt: skip

    def io_callback(
        self, callback: Callable, result_shape_dtypes: Any, *args: Any, sharding: Any = None,
        ordered: bool = False, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """What ``callback`` gives for arrays; it is called whenever the program runs, in its
        order."""
        return self._called(
            "io_callback", callback, result_shape_dtypes, args, kwargs,
            method=None if ordered else "sequential", effect=True,
            no_batch=ValueError("Cannot `vmap` ordered IO callbacks.") if ordered else None,
            no_derivative=self._no_derivative("IO"),
        )  # fmt: skip

    def debug_callback(
        self, callback: Callable, *args: Any, ordered: bool = False, partitioned: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        """Call ``callback`` with arrays whenever the program runs; inside ``vmap`` for each
        example."""
        check_callable(callback)
        given = _Arguments(self.border, args, kwargs)

        def fn(_: list, *arrays: Any) -> list:
            now, words = given.now(arrays)
            callback(*now, **words)
            return []

        Callback("debug_callback", fn, [], method="sequential", effect=True)(*given.taken())

    def debug_print(
        self, fmt: str, *args: Any, ordered: bool = False, partitioned: bool = False,
        skip_format_check: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        """Print ``fmt`` with these values whenever the program runs."""
        if not skip_format_check:
            blank = {n: _Anything() for n in kwargs}
            _Format(self.border.api).vformat(fmt, tuple(_Anything() for _ in args), blank)
        given = _Arguments(self.border, args, kwargs, static=True)

        def fn(_: list, *arrays: Any) -> list:
            now, words = given.now(arrays, plain=True)
            print(fmt.format(*now, **words))
            return []

        Callback("debug_print", fn, [], method="sequential", effect=True)(*given.taken())

    def _no_derivative(self, kind: str) -> Exception:
        return ValueError(
            f"{kind} callbacks do not support JVP. Please use `{self.border.api}.custom_jvp` to "
            "use callbacks while taking gradients."
        )

    def _called(
        self, name: str, callback: Callable, results: Any, args: tuple, kwargs: dict,
        **settings: Any,
    ) -> Any:  # fmt: skip
        check_callable(callback)
        structs, form = self.border.registry.flatten(results)
        given = _Arguments(self.border, args, kwargs)

        def fn(metas: list, *arrays: Any) -> list:
            now, words = given.now(arrays)
            try:
                return self._checked(callback(*now, **words), form, metas)
            except Exception as error:
                raise self.failure(
                    f"INTERNAL: CpuCallback error calling callback: {traceback.format_exc()}"
                ) from error

        metas = [self.aval(s)[:2] for s in structs]
        outs = Callback(name, fn, metas, **settings)(*given.taken())
        made = [self.border.give(o if isinstance(o, Tensor) else tensor_of(o), False) for o in outs]
        return form.build(iter(made))

    def _checked(self, found: Any, form: Any, metas: list) -> list:
        leaves, given = self.border.registry.flatten(found)
        if given != form:
            raise RuntimeError(f"The callback returned {given}; {form} is expected")
        arrays = [np.asarray(x) for x in leaves]
        for x, (shape, _) in zip(arrays, metas, strict=True):
            if x.shape != tuple(shape):
                raise RuntimeError(f"Mismatched result shape: expected {shape}, got {x.shape}")
        return arrays


class _Format(string.Formatter):
    """As ``str.format``; keywords that it does not use are an error."""

    def __init__(self, api: str) -> None:
        self.api = api

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        unused = [args[n] for n in range(len(args)) if n not in used_args]
        names = [n for n in kwargs if n not in used_args]
        for kind, which, example in (("positional", unused, "{x}"), ("keyword", names, "x")):
            if which:
                raise ValueError(
                    f"Unused {kind} arguments to `{self.api}.debug.print`: {which}. You may be "
                    f'passing an f-string (i.e, `f"{example}"`) into `{self.api}.debug.print` and '
                    "instead should pass in a regular string."
                )


class _Anything:
    """A value that can be formatted in any way, indexed and asked for anything."""

    def __format__(self, spec: str) -> str:
        return ""

    def __getitem__(self, _: Any) -> _Anything:
        return self

    def __getattr__(self, _: str) -> _Anything:
        return self


__all__ = ["Callbacks"]
