"""Python's ``if``, ``while`` and ``and`` over tensors, as branches and loops of a program: for
functions that cannot be captured as they are written, whose source is there (AutoGraph)."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .. import tree
from ..compile.autograph import Border, Statements, converted
from ..compile.guards.kinds import is_module
from ..core.tensor import Tensor
from ..core.types.device import CPU
from ..errors import CaptureError
from ..func import control_flow
from ..func.instructions import is_staging, run_switch
from ..func.levels import settle
from ..func.staging import Stage, Staged, _reordered
from ..ops import api as ops


class _Number:
    """A number of Python's that a loop carries as a tensor: ``n += 1`` makes another."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


def _attach(name: str) -> None:
    def method(self: _Number, *others: Any) -> Any:
        plain = [x.tensor if isinstance(x, _Number) else x for x in others]
        return getattr(self.tensor, name)(*plain)

    setattr(_Number, name, method)


for _word in "add sub mul truediv floordiv mod pow".split():
    _attach(f"__{_word}__")
    _attach(f"__r{_word}__")
for _word in "neg abs lt le gt ge eq ne bool".split():
    _attach(f"__{_word}__")


def _truth(value: Any = False) -> Any:
    """``bool`` of a value: of a tensor in a program another tensor."""
    known = isinstance(value, (Tensor, _Number)) and is_staging()
    return value.reshape(()) != 0 if known else bool(value)


class _Tensors(Border):
    """Tensors whose numbers a program cannot read."""

    builtins = {bool: _truth}

    def is_staged(self, value: Any) -> bool:
        return self.is_value(value) and is_staging()

    def is_value(self, value: Any) -> bool:
        return isinstance(value, (Tensor, _Number))

    def value(self, value: Any) -> Any:
        if isinstance(value, _Number):
            return value.tensor
        return value if isinstance(value, Tensor) else ops.as_tensor(value)

    def kind(self, value: Any) -> str:
        return str(self.value(value).meta()[1])

    def is_sequence(self, value: Any) -> bool:
        return False  # (its rows are gone over one by one)

    def begin(self, body: Callable) -> Stage:
        level = Stage(CPU)
        with level.running():
            body()
        return level

    def finish(self, program: Stage, values: list) -> Staged:
        leaves = [self.value(v) for v in tree.leaves(settle(values))]
        ends = [program.number_of(v) for v in leaves]
        consts = list(program.consts.values())
        body = _reordered(program, 0, [tracer.number for _, tracer in consts], ends, [])
        return Staged(body, [value for value, _ in consts], list, leaves, lambda: None)

    def choose(self, test: Any, programs: list, rebuild: Callable) -> Any:
        one, other = (p.body.results for p in programs)
        if one != other:
            raise CaptureError("export: the branches of an if leave tensors of other shapes")
        index = test.reshape(()).logical_not().long()
        return rebuild(run_switch(index, programs, ()))

    def cond(self, test: Any, yes: Callable, no: Callable) -> Any:
        def of(branch: Callable) -> Callable:
            return lambda: tree.map(self.value, branch())

        return control_flow.cond(test, of(yes), of(no))

    def blank(self, value: Any) -> Any:
        shape, kind = self.value(value).meta()
        return ops.zeros(tuple(shape), dtype=kind)

    def while_loop(self, test: Callable, body: Callable, values: list, names: list) -> list:
        given, rebuild = tree.flatten(values)
        start = [self.value(v) for v in given]

        def inside(carried: tuple) -> list:
            pairs = zip(given, carried, strict=True)
            found: list = rebuild([t if isinstance(v, Tensor) else _Number(t) for v, t in pairs])
            return found

        def going(*carried: Any) -> Any:
            return self.value(test(*inside(carried))).reshape(()) != 0

        def turn(*carried: Any) -> tuple:
            found = body(*inside(carried))
            return tuple(self.value(v) for v in tree.leaves(list(found)))

        return rebuild(list(control_flow.while_loop(going, turn, tuple(start))))  # type: ignore[no-any-return]

    def logical(self, word: str, *values: Any) -> Any:
        given = [self.value(v) != 0 for v in values]
        return getattr(ops, f"logical_{word}")(*given)

    def check(self, test: Any, message: Any) -> NoReturn:
        raise CaptureError(f"export: an assert over a tensor cannot be a part of it ({message})")


class _Converting(Statements):
    """Statements of functions and, inside of these, of modules' forwards."""

    def call(self, fn: Any) -> Any:
        if is_module(fn) and "forward" not in fn.__dict__:
            inner = converted(type(fn).forward, self)
            return fn if inner is type(fn).forward else _Module(fn, inner)
        return super().call(fn)


class _Module:
    """A module that is called with another forward."""

    def __init__(self, module: Any, forward: Callable) -> None:
        self.module, self.forward = module, forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with forwards(self.module, self.forward):
            return self.module(*args, **kwargs)


@contextmanager
def forwards(module: Any, forward: Callable) -> Iterator[None]:
    """``module`` has another forward for the block."""
    module.__dict__["forward"] = types.MethodType(forward, module)
    try:
        yield
    finally:
        del module.__dict__["forward"]


STATEMENTS = _Converting(_Tensors())


def staged(fn: Any) -> Any:
    """``fn`` with its statements over tensors as operations; None where its source is not there."""
    found = STATEMENTS.call(fn)
    return None if found is fn else found


__all__ = ["staged"]
