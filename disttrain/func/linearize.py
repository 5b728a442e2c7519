"""``linearize``: the derivative of a function at a point, as a function of tangents.

The function runs once, inside a level of ``jvp`` in which tangents are not moved along but left to
be: each operation leaves a ``Step``, which has what its rule needs. A tangent goes through the
steps that the results depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import tree
from ..core.gate import Primitive
from ..core.tensor import Tensor
from ..core.types.dtypes import of
from ..core.writes import Inside
from ..errors import AutogradError
from .jvp import DualTracer, Forward, left, push, write_back
from .levels import settle
from .numbers import as_tensor, as_tensors
from .reverse import output_leaves

_LINEARIZE = "linearize(f, *primals)"


class Step:
    """Tangents that are to be: ``rule`` makes them of those of ``inputs``."""

    def __init__(self, rule: Callable[[tuple], Any], inputs: tuple) -> None:
        self.rule, self.inputs = rule, inputs


class Part:
    """A tangent that is to be: of a step that gives several, number ``index``; of an argument
    (without a step), that of the argument ``index``."""

    def __init__(self, step: Step | None, index: int | None) -> None:
        self.step, self.index = step, index


class Linear(Forward):
    """One active ``linearize``: the tangents of its values are Parts."""

    name = "linearize"
    deferred = True

    def moved(
        self, prim: Primitive, primals: tuple, tangents: tuple, params: dict, out: Any
    ) -> Any:
        kept: dict = {}

        def rule(given: tuple) -> Any:
            return push(prim, primals, given, params, out, kept)

        return self.later(rule, tangents, out)

    def later(self, rule: Callable[[tuple], Any], tangents: tuple, out: Any) -> Any:
        """The Parts of a step whose results are ``out``."""
        step = Step(rule, tangents)
        if not isinstance(out, tuple):
            return Part(step, None)
        return tuple([Part(step, i) if _moves(o) else None for i, o in enumerate(out)])


def _moves(out: Any) -> bool:
    return isinstance(out, Tensor) and out.meta()[1].kind in "fcV"


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """(``func(*primals)``, the function of tangents that gives its derivative there).

    ``func`` runs once. What its derivative needs is kept as long as that function is.
    """
    leaves, rebuild = tree.flatten(primals)
    leaves = as_tensors(leaves)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise AttributeError(
                f"linearize: the primals must be tensors; {type(leaf).__name__} given"
            )
    level = Linear()
    with level.running():
        ours: list[Any] = [Part(None, i) for i in range(len(leaves))]
        inputs = [level.wrap(p, part) for p, part in zip(leaves, ours, strict=True)]
        with Inside("linearize", leaves).running():
            result = settle(func(*rebuild(inputs)))
        write_back(level, leaves, inputs)
        settle(result)
    outs, unflatten = output_leaves(_LINEARIZE, result)
    values = [o.inner if level.owns(o) else o for o in outs]
    parts = [o.tangent if isinstance(o, DualTracer) and level.owns(o) else None for o in outs]
    steps = _order(parts)
    known = [p.meta() for p in leaves]
    form = tree.structure(primals)

    def push_forward(*tangents: Any) -> Any:
        given = _checked(tangents, known, form)
        moved = _run(steps, parts, given)
        return unflatten([left(v, t) for v, t in zip(values, moved, strict=True)])

    return unflatten(values), push_forward


def _checked(tangents: tuple, known: list, form: str) -> list:
    if tree.structure(tangents) != form:
        raise AutogradError(
            "linearize: Expected the tangents to have the same argspec as the primals: "
            f"{tree.structure(tangents)} given for {form}"
        )
    given = [
        as_tensor(t).to(of(kind)) if isinstance(t, (int, float)) else t
        for t, (_, kind) in zip(tree.leaves(tangents), known, strict=True)
    ]
    for i, (t, meta) in enumerate(zip(given, known, strict=True)):
        if t.meta() != meta:
            shape, kind = meta
            raise AutogradError(
                f"linearize: tangent {i} is {t.dtype!r}{list(t.shape)}; its primal is "
                f"{kind}{list(shape)}"
            )
    return given


def _order(parts: list) -> list[Step]:
    """The steps that ``parts`` depend on, each after those that it goes by."""
    found: dict[Step, None] = {}
    stack = [(p.step, False) for p in parts if p is not None and p.step is not None]
    seen: set[Step] = set()
    while stack:
        step, done = stack.pop()
        if done:
            found[step] = None
        elif step not in seen:
            seen.add(step)
            stack.append((step, True))
            stack.extend((p.step, False) for p in step.inputs if p is not None and p.step)
    return list(found)


def _run(steps: list[Step], parts: list, given: list) -> list:
    """The tangents that ``parts`` stand for, where those of the arguments are ``given``."""
    made: dict[Step, Any] = {}

    def value(part: Part | None) -> Any:
        if part is None:
            return None
        if part.step is None:
            return given[part.index or 0]
        result = made[part.step]
        if part.index is None or result is None:
            return result
        return result[part.index] if isinstance(result, tuple) else None

    for step in steps:
        tangents = tuple([value(p) for p in step.inputs])
        none = all(t is None for t in tangents)
        made[step] = None if none else step.rule(tangents)
    return [value(p) for p in parts]


__all__ = ["linearize"]
