"""Arguments that must be Tensors: what else is given is refused with a TypeError, as by PyTorch,
before a function reads ``.shape`` of a number or computes without any tensor.

What a function wants, its annotations say: ``Tensor`` for one, ``Sequence[Tensor]`` for several,
``dtypes.dtype`` for a type; one of those that take an ``Operand``, and one operand of a primitive,
must be a tensor.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...core.gate import Primitive
from ...core.overriding import overridden
from ...core.tensor import Tensor
from ...core.types import dtypes

# What functions raise that read something of what is no Tensor.
MISREAD = (AttributeError, ValueError, RuntimeError, IndexError)
_ONE, _SEVERAL, _ANY, _TYPE = "Tensor", "Sequence[Tensor]", "Operand", "dtypes.dtype"


@functools.cache
def _wanted(fn: Callable[..., Any]) -> tuple[tuple[str, str], ...]:
    """The names of the parameters in order, with the annotations of those that want Tensors."""
    if isinstance(fn, Primitive):
        return tuple((name, _ANY) for name in fn.args)
    given = inspect.signature(fn).parameters.values()
    return tuple((p.name, str(p.annotation)) for p in given if p.kind in _POSITIONAL)


_POSITIONAL = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


@functools.cache
def _collects(fn: Callable[..., Any]) -> bool:
    """Whether ``fn`` takes any number of tensors."""
    if isinstance(fn, Primitive):
        return False
    first = next(iter(inspect.signature(fn).parameters.values()))
    return first.kind is first.VAR_POSITIONAL


def _given(fn: Callable[..., Any], args: tuple, params: dict) -> Iterator[tuple]:
    """Of each argument: its place, name, annotation and value."""
    if _collects(fn):
        one = len(args) == 1 and isinstance(args[0], (list, tuple))
        yield 0, "tensors", _SEVERAL, args[0] if one else args
        return
    for i, (name, kind) in enumerate(_wanted(fn)):
        if i < len(args) or name in params:
            yield i, name, kind, args[i] if i < len(args) else params[name]


def check(fn: Any, args: tuple, params: dict) -> None:
    """Refuse what is no Tensor and should be one."""
    if len(args) > 3 and getattr(fn, "number_first", False):  # (beta, input, ...) as it once was
        return
    if isinstance(fn, Primitive) and len(args) != len(fn.args) and not params:
        raise TypeError(f"{fn.name}() takes {len(fn.args)} arguments, {len(args)} were given")
    free: list = []
    sure = False  # one must be a tensor, and is
    called = getattr(fn, "__name__", None) or getattr(fn, "name", "")
    for i, name, kind, value in _given(fn, args, params):
        where = f"{called}(): argument '{name}' (position {i + 1})"
        if kind == _ONE and not isinstance(value, Tensor):
            raise TypeError(f"{where} must be Tensor, not {type(value).__name__}; {_HELP}")
        if kind == _TYPE and not isinstance(value, dtypes.dtype):
            raise TypeError(f"{where} must be a dtype, not {type(value).__name__}")
        if kind == _SEVERAL:
            _check_all(where, value)
        elif kind == _ANY:
            free.append((where, value))
        sure = sure or kind == _ONE
    if free and not sure and not any(isinstance(value, Tensor) for _, value in free):
        if called in _OF_NUMBERS:
            return
        where, value = free[0]
        raise TypeError(f"{where} must be Tensor, not {type(value).__name__}; {_HELP}")


_OF_NUMBERS = ("add", "sub", "mul", "div")  # which PyTorch takes two numbers for, too
_HELP = "convert it with dt.tensor(...) or dt.as_tensor(...)"


def _check_all(where: str, values: Any) -> None:
    if not isinstance(values, (Sequence, Tensor)) or isinstance(values, str):
        raise TypeError(f"{where} must be tuple of Tensors, not {type(values).__name__}")
    for i, value in enumerate(values):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"expected Tensor as element {i} in argument 0, but got {type(value).__name__}"
            )


def recheck(fn: Any, args: tuple, params: dict, error: Exception) -> None:
    """The same after ``fn`` raised: what is no Tensor is named before what else is wrong."""
    if not isinstance(error, NotImplementedError) and getattr(fn, "__name__", None) not in _LAST:
        check(fn, args, params)


_LAST = ("tensordot",)  # which looks at its numbers first


# Names of arguments that numpy has for the same, which PyTorch takes, too.
_NUMPY = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input",
          "x2": "other", "axis0": "dim0", "axis1": "dim1"}  # fmt: skip


def otherwise(run: Callable[..., Any], args: tuple, params: dict, error: TypeError) -> Any:
    """After ``run`` refused its arguments: what they are by numpy's names, or what operands that
    are no Tensors make of them; else the error."""
    if "unexpected keyword" in str(error):
        named = {_NUMPY.get(name, name): value for name, value in params.items()}
        if named.keys() != params.keys() and len(named) == len(params):
            return run(*args, **named)
    result = overridden(run, args, params)
    if result is NotImplemented:
        raise error
    return result


def checked(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, which refuses what is no Tensor."""

    @functools.wraps(fn)
    def run(*args: Any, **params: Any) -> Any:
        try:
            if not args or not isinstance(args[0], Tensor):
                check(fn, args, params)
            return fn(*args, **params)
        except TypeError as error:
            return otherwise(run, args, params, error)
        except MISREAD as error:
            recheck(fn, args, params, error)
            raise

    if isinstance(fn, Primitive):
        run.__doc__ = vars(fn).get("__doc__")  # not that of the class
    return run
