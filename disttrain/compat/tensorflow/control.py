"""``tf.cond``, ``tf.while_loop``, ``tf.map_fn`` and the like: Python's control flow eagerly; in a
traced function operations whose bodies are graphs (``disttrain.graphs.control``). And AutoGraph's
border: which values are TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import disttrain as dt

from ... import tree
from ...compile.autograph import Statements
from ...graphs import control
from . import arrays, math
from .arrays import stack, unstack
from .debugging import Assert
from .tensor import GRAPH, SymbolicTensor, convert, is_tensor

_COND = "StatelessIf"
_WORDS = "true_fn and false_fn arguments to tf.cond"


def cond(pred: Any, true_fn: Any = None, false_fn: Any = None, name: str | None = None) -> Any:
    """``true_fn()`` if ``pred``, else ``false_fn()``."""
    if not callable(true_fn) or not callable(false_fn):
        which = "true_fn" if not callable(true_fn) else "false_fn"
        raise TypeError(f"'{which}' must be callable.")
    if GRAPH.get() is None or not is_tensor(pred):
        return true_fn() if bool(pred) else false_fn()
    return control.cond(_COND, convert(pred), true_fn, false_fn, _WORDS)


def switch_case(branch_index: Any, branch_fns: Any, default: Any = None, name: str = "switch_case"):
    """The result of the function that ``branch_index`` names; ``default`` for other numbers."""
    pairs = branch_fns.items() if isinstance(branch_fns, dict) else (
        enumerate(branch_fns) if callable(branch_fns[0]) else branch_fns)  # fmt: skip
    table = dict(pairs)
    fallback = default or table[max(table)]
    fns = [table.get(i, fallback) for i in range(max(table) + 1)] + [fallback]
    if GRAPH.get() is None:
        n = int(branch_index)
        return fns[n if 0 <= n < len(fns) else -1]()
    graphs = [control.traced(f"branch_{i}", fn, []) for i, fn in enumerate(fns)]
    return control.branch("Case", convert(branch_index), [g for g, _ in graphs], graphs[0][1])


def case(
    pred_fn_pairs: Any, default: Any = None, exclusive: bool = False, name: str = "case"
) -> Any:
    """The result of the first function whose predicate holds."""
    pairs = list(pred_fn_pairs.items() if isinstance(pred_fn_pairs, dict) else pred_fn_pairs)
    if not pairs:
        return default()
    (pred, fn), *rest = pairs
    last = fn if default is None and not rest else default
    return cond(pred, fn, (lambda: case(rest, default)) if rest else last)


def while_loop(
    cond: Callable, body: Callable, loop_vars: Any, shape_invariants: Any = None,
    parallel_iterations: int = 10, back_prop: bool = True, swap_memory: bool = False,
    maximum_iterations: Any = None, name: str | None = None,
) -> Any:  # fmt: skip
    """``loop_vars = body(*loop_vars)`` while ``cond(*loop_vars)``."""
    for word, fn in (("cond", cond), ("body", body)):
        if not callable(fn):
            raise TypeError(f"'{word}' must be callable.")
    limit = None if maximum_iterations is None else int(maximum_iterations)
    count, values = 0, loop_vars
    if GRAPH.get() is None:
        while cond(*values) and (limit is None or count < limit):
            values, count = _as_list(body(*values)), count + 1
        values = tree.map(convert, list(values))
    else:
        step = lambda *v: _as_list(body(*v))  # noqa: E731
        values = control.while_loop(cond, step, list(loop_vars), limit)
    return tuple(values) if isinstance(loop_vars, tuple) else values


def _as_list(found: Any) -> list:
    return list(found) if isinstance(found, (list, tuple)) else [found]


# --- over elements ----------------------------------------------------------------------------
def _over(elems: Any, step: Callable, values: list) -> Any:
    """``values = step(element, *values)`` for each element along the first dimension."""
    leaves, rebuild = tree.flatten(elems)
    tensors = [convert(t) for t in leaves]
    count = tensors[0].shape[0]
    if count is None:
        raise NotImplementedError(
            "tf.map_fn, tf.scan and tf.foldl in a traced function need to know how many elements "
            "there are: give the first dimension in the input signature, or use `for x in tensor`"
        )
    columns = [unstack(t) for t in tensors]
    for i in range(count):
        values = step(rebuild([c[i] for c in columns]), *values)
    return values


def map_fn(fn: Callable, elems: Any, dtype: Any = None, parallel_iterations: Any = None,
           back_prop: bool = True, swap_memory: bool = False, infer_shape: bool = True,
           name: str | None = None, fn_output_signature: Any = None) -> Any:  # fmt: skip
    """``fn`` of each element along the first dimension, stacked."""
    found: list[Any] = []
    _over(elems, lambda x: found.append(fn(x)) or [], [])  # type: ignore[func-returns-value]
    return _stacked(found)


def _stacked(found: list) -> Any:
    rows = [tree.leaves(f) for f in found]
    rebuild = tree.flatten(found[0])[1]
    return rebuild([stack(list(column)) for column in zip(*rows, strict=True)])


def scan(fn: Callable, elems: Any, initializer: Any = None, parallel_iterations: int = 10,
         back_prop: bool = True, swap_memory: bool = False, infer_shape: bool = True,
         reverse: bool = False, name: str | None = None) -> Any:  # fmt: skip
    """``state = fn(state, element)`` along the first dimension: all states, stacked."""
    states: list[Any] = []

    def step(x: Any, *state: Any) -> list:
        states.append(tree.map(convert, fn(state[0], x) if state else x))
        return [states[-1]]

    start = [] if initializer is None else [tree.map(convert, initializer)]
    _over(tree.map(_reversed, elems) if reverse else elems, step, start)
    return _stacked(states[::-1] if reverse else states)


def _reversed(t: Any) -> Any:
    return stack(unstack(convert(t))[::-1])


def foldl(fn: Callable, elems: Any, initializer: Any = None, **options: Any) -> Any:
    """The last state of ``scan``."""
    start = [] if initializer is None else [tree.map(convert, initializer)]
    return _over(elems, lambda x, *s: [fn(s[0], x) if s else x], start)[0]


def foldr(fn: Callable, elems: Any, initializer: Any = None, **options: Any) -> Any:
    """As ``foldl``, from the last element on."""
    return foldl(fn, tree.map(_reversed, elems), initializer)


def vectorized_map(
    fn: Callable, elems: Any, fallback_to_while_loop: bool = True, warn: bool = True
):
    """``fn`` of all elements along the first dimension at once (``dt.func.vmap``)."""
    if GRAPH.get() is not None:
        return map_fn(fn, elems)
    leaves, rebuild = tree.flatten(elems)
    out: list[Any] = []

    def one(*values: Any) -> tuple:
        rows, back = tree.flatten(tree.map(convert, fn(rebuild([convert(v) for v in values]))))
        out[:] = [back]
        return tuple(r._value for r in rows)

    results = dt.func.vmap(one)(*[convert(t)._value for t in leaves])
    return out[0]([convert(r) for r in results])


# --- AutoGraph --------------------------------------------------------------------------------
class _Tensors(control.Staging):
    kind_of_branch = _COND

    def is_value(self, value: Any) -> bool:
        return is_tensor(value)

    def value(self, value: Any) -> Any:
        return value if is_tensor(value) else convert(value)

    def kind(self, value: Any) -> str:
        return self.value(value).dtype.name

    def logical(self, word: str, *values: Any) -> Any:
        return math.NAMES[f"logical_{word}"](*values)

    def check(self, test: Any, message: Any) -> None:
        Assert(test, [message])


def _len(value: Any) -> Any:
    if not isinstance(value, SymbolicTensor):
        return len(value)
    known = value.shape[0] if value.shape.rank else None
    return arrays.NAMES["shape"](value)[0] if known is None else known


def _number(kind: type, name: str) -> Callable:
    return lambda *a: math.cast(a[0], name) if a and isinstance(a[0], SymbolicTensor) else kind(*a)


_Tensors.builtins = {
    range: lambda *a: arrays.NAMES["range"](*a) if any(map(is_tensor, a)) else range(*a),
    enumerate: lambda values, start=0: enumerate(
        unstack(values) if isinstance(values, SymbolicTensor) else values, start),
    len: _len, int: _number(int, "int32"), float: _number(float, "float32"),
}  # fmt: skip
STATEMENTS = Statements(_Tensors())
NAMES = {f.__name__: f for f in (cond, switch_case, case, while_loop, map_fn, scan, foldl, foldr,
                                 vectorized_map)}  # fmt: skip
