"""What converted functions call (see ``autograph``): Python's statements, of tensors or not."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import tree
from . import arrays, control, math
from .autograph import converted
from .tensor import GRAPH, SymbolicTensor, convert, is_tensor

_ME = sys.modules[__name__]


class Undefined:
    """A variable that has no value yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, word: str) -> Any:
        raise UnboundLocalError(f"local variable {self.name!r} referenced before assignment")

    def __bool__(self) -> bool:
        raise UnboundLocalError(f"local variable {self.name!r} referenced before assignment")


def _symbolic(value: Any) -> bool:
    return isinstance(value, SymbolicTensor) or (
        GRAPH.get() is not None and is_tensor(value) and not isinstance(value, np.ndarray)
    )


def _as_test(value: Any) -> Any:
    return convert(value) if is_tensor(value) else value


def if_stmt(test: Any, yes: Callable, no: Callable, get: Callable, put: Callable, names: list) -> None:
    """``if test: yes() else: no()``, which set the variables ``names``."""
    if not _symbolic(test):
        (yes if test else no)()
        return
    before = get()
    ends: list[tuple] = []

    def run(body: Callable) -> Callable:
        def branch() -> list:
            put(before)
            body()
            ends.append(get())
            return ends[-1]

        return branch

    first = _ends_of(run(yes))
    put(before)
    second = _ends_of(run(no))
    put(before)
    changed = [i for i in range(len(names)) if not (ends[0][i] is before[i] is ends[1][i])]
    changed = [i for i in changed if not _same(ends[0][i], ends[1][i])]
    for i in changed:
        _both_there(names[i], ends[0][i], ends[1][i])
    graphs = [_finished(g, [e[i] for i in changed]) for g, e in zip((first, second), ends, strict=True)]
    _check_types([names[i] for i in changed], ends, changed)
    _, rebuild = tree.flatten([ends[0][i] for i in changed])
    found = control.branch("StatelessIf", control._flipped(convert(test)), graphs, rebuild)
    known = {i: v for i, v in zip(changed, found, strict=True)}
    put(tuple(known.get(i, ends[0][i]) for i in range(len(names))))


def _ends_of(branch: Callable) -> Any:
    graph = control.FuncGraph("branch", GRAPH.get())
    with graph:
        branch()
    return graph


def _finished(graph: Any, values: list) -> Any:
    with graph:
        graph.finish([convert(v) for v in tree.leaves(values)])
    return graph


def _same(a: Any, b: Any) -> bool:
    """Whether two branches leave one Python value."""
    if a is b:
        return True
    plain = (int, float, str, bool, bytes, type(None))
    if isinstance(a, Undefined) and isinstance(b, Undefined):
        return True
    return type(a) is type(b) and isinstance(a, plain) and a == b


def _both_there(name: str, a: Any, b: Any) -> None:
    for value, where in ((a, "main"), (b, "else")):
        if isinstance(value, Undefined):
            raise ValueError(f"'{name}' must also be initialized in the {where} branch")
        if value is None:
            raise ValueError(f"'{name}' must also be initialized in the {where} branch; it is None "
                             "there")  # fmt: skip


def _check_types(names: list, ends: list, changed: list) -> None:
    for name, i in zip(names, changed, strict=True):
        pairs = zip(tree.leaves(ends[0][i]), tree.leaves(ends[1][i]), strict=False)
        for a, b in pairs:
            x, y = (v.dtype if is_tensor(v) else convert(v).dtype for v in (a, b))
            if x is not y:
                raise TypeError(f"'{name}' has dtype {x.name} in the main branch, but dtype "
                                f"{y.name} in the else branch")  # fmt: skip


def if_return(test: Any, yes: Callable, no: Callable, get: Callable, put: Callable, names: list) -> Any:
    """``if`` whose branches return."""
    if not _symbolic(test):
        return (yes if test else no)()
    before = get()

    def run(body: Callable) -> Callable:
        def branch() -> Any:
            put(before)
            return body()

        return branch

    return control.cond(_as_test(test), run(yes), run(no))


def if_exp(test: Any, yes: Callable, no: Callable) -> Any:
    """``yes() if test else no()``."""
    return control.cond(_as_test(test), yes, no) if _symbolic(test) else (yes() if test else no())


def _states(values: tuple, names: list) -> list[int]:
    """Which variables of a loop are its state: those that are tensors or numbers before it."""
    return [i for i, v in enumerate(values) if not isinstance(v, Undefined) and v is not None
            and all(is_tensor(x) or isinstance(x, (int, float, complex, np.ndarray, np.generic))
                    for x in tree.leaves(v))]  # fmt: skip


def while_stmt(test: Callable, body: Callable, get: Callable, put: Callable, names: list) -> None:
    """``while test(): body()``."""
    found = test()
    if not _symbolic(found):
        while found:
            body()
            found = test()
        return
    before = get()
    live = _states(before, names)

    def with_values(values: tuple, fn: Callable) -> Any:
        now = list(before)
        for i, v in zip(live, values, strict=True):
            now[i] = v
        put(tuple(now))
        return fn()

    def step(*values: Any) -> list:
        with_values(values, body)
        after = get()
        return [_like(after[i], before[i]) for i in live]

    result = control.staged_while(
        lambda *v: _as_test(with_values(v, test)), step, [before[i] for i in live],
        names=[names[i] for i in live],
    )  # fmt: skip
    _settle(put, before, live, result)


def _like(after: Any, before: Any) -> Any:
    return after if is_tensor(after) else tree.map(lambda a: convert(a), after)


def _settle(put: Callable, before: tuple, live: list, result: Any) -> None:
    now = list(before)
    for i, v in zip(live, result, strict=True):
        now[i] = v
    put(tuple(now))


def for_stmt(
    over: Any, body: Callable, get: Callable, put: Callable, names: list, go_on: Callable | None
) -> None:
    """``for x in over: body(x)``, while ``go_on()``."""
    staged = _symbolic(over) or (GRAPH.get() is not None and hasattr(over, "element_spec"))
    if not staged:
        for item in over:
            if go_on is not None and not go_on():
                break
            body(item)
        return
    before = get()
    live = _states(before, names)

    def with_values(values: tuple) -> None:
        now = list(before)
        for i, v in zip(live, values, strict=True):
            now[i] = v
        put(tuple(now))

    def step(item: Any, *values: Any) -> list:
        with_values(values)
        body(item)
        after = get()
        return [_like(after[i], before[i]) for i in live]

    def more(*values: Any) -> Any:
        with_values(values)
        return _as_test(go_on()) if go_on is not None else True

    over = _as_test(over) if is_tensor(over) else over
    result = control.staged_for(
        over, step, [before[i] for i in live], [names[i] for i in live], go_on and more
    )
    _settle(put, before, live, result)


def and_(a: Callable, b: Callable) -> Any:
    """``a() and b()``."""
    first = a()
    return math.NAMES["logical_and"](first, b()) if _symbolic(first) else first and b()


def or_(a: Callable, b: Callable) -> Any:
    """``a() or b()``."""
    first = a()
    return math.NAMES["logical_or"](first, b()) if _symbolic(first) else first or b()


def not_(a: Any) -> Any:
    """``not a``."""
    return math.NAMES["logical_not"](a) if _symbolic(a) else not a


def assert_(test: Any, message: Callable) -> None:
    """``assert test, message()``."""
    if _symbolic(test):
        from_debugging["Assert"](test, [message() or "assertion failed"])
    else:
        assert test, message()


from_debugging: dict[str, Any] = {}  # what ``debugging`` has, which is made above


def _range(*limits: Any) -> Any:
    return arrays.range(*limits) if any(map(is_tensor, limits)) else range(*limits)


def _len(value: Any) -> Any:
    if isinstance(value, SymbolicTensor):
        known = value.shape[0] if value.shape.rank else None
        return arrays.shape(value)[0] if known is None else known  # type: ignore[index]
    return len(value)


def _number(kind: type, name: str) -> Callable:
    return lambda *a: math.cast(a[0], name) if a and isinstance(a[0], SymbolicTensor) else kind(*a)


def _enumerate(values: Any, start: int = 0) -> Any:
    if isinstance(values, SymbolicTensor):
        return list(enumerate(arrays.unstack(values), start))
    return enumerate(values, start)


_PYTHON: dict[Any, Any] = {
    range: _range, len: _len, int: _number(int, "int32"), float: _number(float, "float32"),
    enumerate: _enumerate,
}  # fmt: skip


def call(fn: Any) -> Any:
    """What is called in place of ``fn``: its converted form."""
    if isinstance(fn, (types.FunctionType, types.MethodType)):
        return converted(fn, _ME)
    if isinstance(fn, (type, types.BuiltinFunctionType)):
        return _PYTHON.get(fn, fn)
    if isinstance(fn, functools.partial):
        return functools.partial(call(fn.func), *fn.args, **fn.keywords)
    own = getattr(type(fn), "__call__", None)
    if inspect.isfunction(own) and not hasattr(fn, "python_function"):
        inner = converted(own, _ME)
        return fn if inner is own else types.MethodType(inner, fn)
    return fn


def convert_function(fn: Callable) -> Callable:
    """``fn`` under AutoGraph."""
    return call(fn)
