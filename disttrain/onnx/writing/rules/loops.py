"""Branches and loops, whose bodies are graphs in a node: ``If``, ``Loop`` and ``Scan``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....export import Graph
from ..types import BOOL, INT64, Ref
from ..writer import Body, Writer, rule


def _results(graph: Graph, w: Writer) -> list[str]:
    return [w.fresh(f"{w.scope}result") for _ in graph.outputs]


def _given(graph: Graph, w: Writer) -> list[Ref]:
    """What a body is given, under names of its own."""
    values = [graph.values[n] for n in graph.inputs]
    return [Ref(w.fresh(w.scope + v.name), np.dtype(v.dtype), tuple(v.shape)) for v in values]


# --- branches ----------------------------------------------------------------------------------
@rule("cond")
def _cond(w: Writer, index: Ref, *operands: Ref, branches: tuple) -> tuple:
    found = _chosen(w, index, operands, branches, 0)
    return tuple(found)


def _branch(w: Writer, graph: Graph, operands: Sequence[Ref]) -> Body:
    inner = w.inside()
    ends = w.convert(graph, inner, operands, _results(graph, inner))
    return Body(inner.ops, [], ends)


def _chosen(
    w: Writer, index: Ref, operands: Sequence[Ref], branches: Sequence[Graph], at: int
) -> list[Ref]:
    """The first branch where the number is at most ``at``, else one of the others."""
    first = w.node("LessOrEqual", index, w.constant(at, index.dtype), dtype=BOOL)
    outs, convert = list(w.outs), w.convert
    then = _branch(w, branches[0], operands)
    if len(branches) == 2:
        other = _branch(w, branches[1], operands)
    else:
        inner = w.inside()
        made = _chosen(inner, index, operands, branches[1:], at + 1)
        other = Body(inner.ops, [], made)
    w.outs, w.convert = outs, convert
    kinds = [r.dtype for r in then.outputs]
    found = w.node("If", first, outputs=len(kinds), dtype=BOOL, then_branch=then, else_branch=other)
    refs = found if isinstance(found, tuple) else (found,)
    return [replace(r, dtype=k) for r, k in zip(refs, kinds, strict=True)]


# --- loops -------------------------------------------------------------------------------------
@rule("while")
def _while(w: Writer, *args: Ref, cond: Graph, body: Graph, of_cond: int, of_body: int) -> tuple:
    """Arguments: what the condition takes, what the body takes, what is carried."""
    fixed, constants = args[:of_cond], args[of_cond : of_cond + of_body]
    carry = args[of_cond + of_body :]
    convert = w.convert
    (going,) = convert(cond, w, [*fixed, *carry], [])
    inner = w.inside()
    turn, before = (
        Ref(inner.fresh(f"{inner.scope}turn"), INT64, ()),
        inner.fresh(f"{inner.scope}going"),
    )
    begins = _given(body, inner)[of_body:]
    ends = convert(body, inner, [*constants, *begins], _results(body, inner))
    (again,) = convert(cond, inner, [*fixed, *ends], _results(cond, inner))
    again = replace(again, shape=())
    given = [turn, Ref(before, BOOL, ()), *begins]
    made = w.node(
        "Loop", None, w.reshape(going, ()), *carry, outputs=len(carry), dtype=BOOL,
        body=Body(inner.ops, given, [again, *ends]),
    )  # fmt: skip
    refs = made if isinstance(made, tuple) else (made,)
    return tuple(replace(r, dtype=c.dtype) for r, c in zip(refs, carry, strict=True))


@rule("scan")
def _scan(
    w: Writer, *args: Ref, body: Graph, consts: int, carries: int, length: Any, reverse: bool
) -> tuple:
    """Arguments: what does not change, what is carried, sequences."""
    constants, carry = args[:consts], list(args[consts : consts + carries])
    xs, convert = list(args[consts + carries :]), w.convert
    inner = w.inside()
    begins = _given(body, inner)[consts:]
    ends = convert(body, inner, [*constants, *begins], _results(body, inner))
    if not xs:  # it must be told how many turns there are
        steps = [w.constant(0, INT64), w.size(length), w.constant(1, INT64)]
        xs = [w.node("Range", *steps)]
        begins = [*begins, Ref(inner.fresh(f"{inner.scope}turn"), INT64, ())]
    rows = len(ends) - carries
    how = {
        "num_scan_inputs": len(xs),
        "scan_input_directions": [1] * len(xs) if reverse else None,
        "scan_output_directions": [1] * rows if reverse and rows else None,
    }
    made = w.node("Scan", *carry, *xs, outputs=len(ends), dtype=BOOL,
                  body=Body(inner.ops, begins, ends), **how)  # fmt: skip
    refs = made if isinstance(made, tuple) else (made,)
    return tuple(replace(r, dtype=e.dtype) for r, e in zip(refs, ends, strict=True))
