"""``tf.cond``, ``tf.while_loop``, ``tf.map_fn`` and the like: Python's control flow eagerly; in a
traced function an operation whose branches and bodies are graphs of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt

from ... import tree
from .arrays import stack, unstack
from .graph import FuncGraph
from .tensor import GRAPH, SymbolicTensor, convert, is_tensor
from .types import TensorSpec


def traced(name: str, fn: Callable, given: list, names: Any = None) -> tuple[FuncGraph, Any]:
    """The graph of ``fn`` of ``given`` (tensors, for their shapes), and the structure of what it
    returns."""
    outer = GRAPH.get()
    graph = FuncGraph(name, outer)
    with graph:
        inputs = []
        for i, t in enumerate(given):
            twin = t._twin if isinstance(t, SymbolicTensor) else t._value
            spec = TensorSpec(t.shape, t.dtype)
            inputs.append(graph.placeholder(spec, t._value, twin, f"args_{i}"))
        leaves, rebuild = tree.flatten(fn(*inputs))
        graph.finish([convert(v) for v in leaves])
    return graph, rebuild


def _captures(graphs: list[FuncGraph]) -> tuple[list, list[list[int]]]:
    """What graphs use of outside, once each, and where each finds its own among it."""
    found: list[Any] = []
    places = []
    for graph in graphs:
        mine = []
        for t, _ in graph.captured:
            at = next((i for i, f in enumerate(found) if f is t), None)
            if at is None:
                at = len(found)
                found.append(t)
            mine.append(at)
        places.append(mine)
    return found, places


def branch(kind: str, index: Any, branches: list[FuncGraph], rebuild: Any) -> Any:
    """An operation that runs one of ``branches``: the one that ``index`` says."""
    outs = [g.outputs for g in branches]
    first = outs[0]
    for other in outs[1:]:
        if len(other) != len(first):
            raise TypeError(
                "true_fn and false_fn arguments to tf.cond must have the same number, type, and "
                f"overall structure of return values; {len(first)} and {len(other)} given"
            )
        for a, b in zip(first, other, strict=True):
            if a.dtype is not b.dtype:
                raise TypeError(f"true_fn and false_fn must return the same types: {a.dtype.name} "
                                f"and {b.dtype.name} given")  # fmt: skip
    held, places = _captures(branches)

    def call(at: Any, *values: Any, run: Any) -> tuple:
        n = int(at)
        n = n if 0 <= n < len(branches) else len(branches) - 1
        return tuple(branches[n].run([values[i] for i in places[n]], run))

    examples = tuple(t._value for t in first)
    alike = [all(o[i].shape == t.shape for o in outs) for i, t in enumerate(first)]
    twins = [t._twin if same else None for t, same in zip(first, alike, strict=True)]
    found = GRAPH.get().record(
        kind, call, [index, *held], "cond", examples=examples, controlled=True, twins=twins
    )
    return rebuild(list(found))


def cond(pred: Any, true_fn: Any = None, false_fn: Any = None, name: str | None = None) -> Any:
    """``true_fn()`` if ``pred``, else ``false_fn()``."""
    if not callable(true_fn) or not callable(false_fn):
        which = "true_fn" if not callable(true_fn) else "false_fn"
        raise TypeError(f"'{which}' must be callable.")
    if GRAPH.get() is None or not is_tensor(pred):
        return true_fn() if bool(pred) else false_fn()
    yes, rebuild = traced("cond_true", true_fn, [])
    no, _ = traced("cond_false", false_fn, [])
    return branch("StatelessIf", flipped(convert(pred)), [yes, no], rebuild)


def flipped(pred: Any) -> Any:
    return GRAPH.get().record("Cast", lambda p: 1 - p.int(), [pred])


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
    graphs = [traced(f"branch_{i}", fn, []) for i, fn in enumerate(fns)]
    return branch("Case", convert(branch_index), [g for g, _ in graphs], graphs[0][1])


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
    if not callable(cond) or not callable(body):
        raise TypeError("'cond' must be callable." if not callable(cond) else
                        "'body' must be callable.")  # fmt: skip
    limit = None if maximum_iterations is None else int(maximum_iterations)
    if GRAPH.get() is None:
        count, values = 0, loop_vars
        while cond(*values) and (limit is None or count < limit):
            found = body(*values)
            values = found if isinstance(found, (list, tuple)) else [found]
            count += 1
        return tree.map(
            convert, type(loop_vars)(values) if isinstance(loop_vars, tuple) else values
        )
    found = staged_while(cond, lambda *v: _as_list(body(*v)), list(loop_vars), limit)
    return tuple(found) if isinstance(loop_vars, tuple) else found


def _as_list(found: Any) -> list:
    return list(found) if isinstance(found, (list, tuple)) else [found]


def staged_while(
    test: Callable, body: Callable, values: list, limit: int | None = None,
    names: Any = None,
) -> Any:  # fmt: skip
    """A loop as one operation: ``test`` and ``body`` take and give the nested ``values``."""
    leaves, rebuild = tree.flatten(values)
    start = [GRAPH.get().inside(convert(v)) for v in leaves]
    tests, _ = traced("while_cond", lambda *v: test(*rebuild(list(v))), start)
    steps, _ = traced("while_body", lambda *v: body(*rebuild(list(v))), start)
    _check_loop(start, steps.outputs, names)
    held, (for_test, for_step) = _captures([tests, steps])
    count = len(start)

    def call(*given: Any, run: Any) -> tuple:
        now, around = list(given[:count]), given[count:]
        extra, more = [around[i] for i in for_test], [around[i] for i in for_step]
        done = 0
        while bool(tests.run([*now, *extra], run)[0]) and (limit is None or done < limit):
            now = steps.run([*now, *more], run)
            done += 1
        return tuple(now)

    return _loop("While", call, start, steps.outputs, held, rebuild)


def staged_for(
    over: Any, body: Callable, values: list, names: Any = None, go_on: Any = None
) -> Any:
    """A loop over the first dimension of a tensor, or the elements of a data set, as one operation.
    ``body(element, *values)`` gives the next values; ``go_on(*values)`` whether it goes on."""
    leaves, rebuild = tree.flatten(values)
    graph = GRAPH.get()
    start = [graph.inside(convert(v)) for v in leaves]
    within = is_tensor(over)
    over = graph.inside(convert(over)) if within else over
    first = first_of(over)
    parts, whole = tree.flatten(first)
    parts = [convert(p) for p in parts]
    steps, _ = traced("for_body", lambda *v: body(whole(list(v[: len(parts)])),
                      *rebuild(list(v[len(parts) :]))), [*parts, *start])  # fmt: skip
    tests = traced("for_cond", lambda *v: go_on(*rebuild(list(v))), start)[0] if go_on else None
    _check_loop(start, steps.outputs, names)
    held, (for_step, for_test) = _captures([steps, tests or FuncGraph("none")])
    count = len(start)

    def call(*given: Any, run: Any) -> tuple:
        rows = given[0].unbind(0) if within else over
        given = given[1:] if within else given
        now, around = list(given[:count]), given[count:]
        for row in rows:
            if tests and not bool(tests.run([*now, *[around[i] for i in for_test]], run)[0]):
                break
            element = [row] if within else [convert(v)._value for v in tree.leaves(row)]
            now = steps.run([*element, *now, *[around[i] for i in for_step]], run)
        return tuple(now)

    return _loop("While", call, [over, *start] if within else start, steps.outputs, held, rebuild)


def first_of(over: Any) -> Any:
    """An element of what a staged loop goes over."""
    if is_tensor(over):
        graph = GRAPH.get()
        return graph.record("StridedSlice", _first, [graph.inside(convert(over))])
    token = GRAPH.set(None)
    try:
        return next(iter(over))
    finally:
        GRAPH.reset(token)


def _first(value: Any) -> Any:
    shape = tuple(value.shape[1:])
    return value[0] if len(value) else dt.zeros(shape, dtype=value.dtype)


def _loop(kind: str, call: Any, inputs: list, outs: list, held: list, rebuild: Any) -> Any:
    start = inputs[len(inputs) - len(outs) :]
    same = [s.shape == o.shape for s, o in zip(start, outs, strict=True)]
    twins = [o._twin if alike else None for o, alike in zip(outs, same, strict=True)]
    examples = tuple(o._value for o in outs)
    found = GRAPH.get().record(
        kind, call, [*inputs, *held], "while", examples=examples, controlled=True, twins=twins
    )
    return rebuild(list(found))


def _check_loop(start: list, outs: list, names: Any) -> None:
    if len(start) != len(outs):
        raise ValueError(f"The two structures don't have the same nested structure: {len(start)} "
                         f"loop variables, and {len(outs)} after one iteration")  # fmt: skip
    for i, (a, b) in enumerate(zip(start, outs, strict=True)):
        if a.dtype is not b.dtype:
            word = names[i] if names and i < len(names) else f"loop_vars[{i}]"
            raise TypeError(f"'{word}' has dtype {a.dtype.name} before the loop, but dtype "
                            f"{b.dtype.name} after one iteration")  # fmt: skip


# --- over elements ----------------------------------------------------------------------------
def _count_of(elems: Any) -> Any:
    return convert(tree.leaves(elems)[0]).shape[0]


def _over(elems: Any, step: Callable, values: list) -> Any:
    """``values = step(element, *values)`` for each element along the first dimension."""
    leaves, rebuild = tree.flatten(elems)
    tensors = [convert(t) for t in leaves]
    count = tensors[0].shape[0]
    if count is None:
        raise NotImplementedError("tf.map_fn, tf.scan and tf.foldl in a traced function need to "
                                  "know "
                                  "how many elements there are: give the first dimension in the "
                                  "input signature, or use `for x in tensor`")  # fmt: skip
    columns = [unstack(t) for t in tensors]
    for i in range(count):
        values = step(rebuild([c[i] for c in columns]), *values)
    return values


def map_fn(fn: Callable, elems: Any, dtype: Any = None, parallel_iterations: Any = None,
           back_prop: bool = True, swap_memory: bool = False, infer_shape: bool = True,
           name: str | None = None, fn_output_signature: Any = None) -> Any:  # fmt: skip
    """``fn`` of each element along the first dimension, stacked."""
    found: list[Any] = []

    def step(x: Any) -> list:
        found.append(fn(x))
        return []

    _over(elems, step, [])
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
        now = x if not state else fn(state[0], x)
        states.append(tree.map(convert, now))
        return [states[-1]]

    given = tree.map(lambda t: _reversed(convert(t)), elems) if reverse else elems
    _over(given, step, [] if initializer is None else [tree.map(convert, initializer)])
    return _stacked(states[::-1] if reverse else states)


def _reversed(t: Any) -> Any:
    return stack(unstack(t)[::-1])


def foldl(fn: Callable, elems: Any, initializer: Any = None, **options: Any) -> Any:
    """The last state of ``scan``."""
    start = [] if initializer is None else [tree.map(convert, initializer)]
    return _over(elems, lambda x, *s: [fn(s[0], x) if s else x], start)[0]


def foldr(fn: Callable, elems: Any, initializer: Any = None, **options: Any) -> Any:
    """As ``foldl``, from the last element on."""
    return foldl(fn, tree.map(lambda t: _reversed(convert(t)), elems), initializer)


def vectorized_map(
    fn: Callable, elems: Any, fallback_to_while_loop: bool = True, warn: bool = True
):
    """``fn`` of all elements along the first dimension at once (``dt.func.vmap``)."""
    leaves, rebuild = tree.flatten(elems)
    tensors = [convert(t) for t in leaves]
    if GRAPH.get() is not None:
        return map_fn(fn, elems)
    out: list[Any] = []

    def one(*values: Any) -> tuple:
        found = fn(rebuild([_wrapped(v) for v in values]))
        rows, back = tree.flatten(tree.map(convert, found))
        out[:] = [back]
        return tuple(r._value for r in rows)

    results = dt.func.vmap(one)(*[t._value for t in tensors])
    return out[0]([_wrapped(r) for r in results])


def _wrapped(value: Any) -> Any:
    return convert(value) if not isinstance(value, np.ndarray) else value


NAMES = {
    n: globals()[n]
    for n in """cond switch_case case while_loop map_fn scan foldl foldr
vectorized_map""".split()
}
