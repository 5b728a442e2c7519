"""``torch.jit``: names by which programs ask for another way of computing the same. Functions and
modules run as they are written."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final

from ...futures import Future
from ...nn import Module
from ..publish import Shim


class TracerWarning(Warning):
    """That a trace may not say all that a program does: never given, since programs run."""


class ScriptFunction:
    """The type of functions that were compiled from a script: there are none."""


class ScriptModule(Module):
    """The type of modules that were compiled from a script: ``script`` gives none, but a program
    may derive from it."""


def script(
    obj: object, optimize: object = None, _frames_up: int = 0, _rcb: object = None,
    example_inputs: object = None,
) -> Any:  # fmt: skip
    """``obj`` itself: a function, a class or a module, which runs as it is written."""
    return obj


def trace(func: object, example_inputs: object = None, *args: object, **kwargs: object) -> Any:
    """``func`` itself, which runs as it is written; with any inputs, not only such as these."""
    return func


def _as_it_is(obj: object = None, *args: object, **kwargs: object) -> Any:
    return obj


def _mark(fn: object = None, drop: bool = False, **kwargs: object) -> Any:
    """A decorator that changes nothing, with or without arguments of its own."""
    return fn if callable(fn) else lambda f: f


def interface(cls: type) -> type:
    """Mark a class that says which methods a module has."""
    cls.__torch_script_interface__ = True  # type: ignore[attr-defined]
    return cls


def fork(func: Callable, *args: object, **kwargs: object) -> Future:
    """A future of what ``func`` returns; it has run when this returns."""
    out: Future = Future()
    try:
        out.set_result(func(*args, **kwargs))
    except Exception as error:
        out.set_exception(error)
    return out


def jit() -> Shim:
    """``torch.jit``."""
    return Shim("torch.jit").give(
        script=script,
        trace=trace,
        script_if_tracing=_mark,
        freeze=_as_it_is,
        optimize_for_inference=_as_it_is,
        export=_mark,
        ignore=_mark,
        unused=_mark,
        _overload=_as_it_is,
        _overload_method=_as_it_is,
        interface=interface,
        is_scripting=lambda: False,
        is_tracing=lambda: False,
        annotate=lambda the_type, the_value: the_value,
        isinstance=builtins.isinstance,
        fork=fork,
        wait=lambda future: future.wait(),
        Final=Final,
        ScriptFunction=ScriptFunction,
        TracerWarning=TracerWarning,
        ScriptModule=ScriptModule,
        RecursiveScriptModule=ScriptModule,
    )
