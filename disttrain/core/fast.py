"""The gate's fast path for the commonest forms: one or two plain operands of one element type, a
reduction, a view whose memory is already at hand.

Same meaning as ``gate.gate`` for them, with the generality taken out: everything that is not a
plain float array under RECORD or PLAIN mode goes to the gate itself. Bodies are long and nodes are
filled in place on purpose: small operations are all overhead, and Python's calls are most of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..context import SLOW, thread
from ..core.annotations import Operand
from .algebra import Algebra
from .gate import Primitive, finish, gate
from .node import NOTHING, Node, Output, next_seq
from .overriding import overridden, refused
from .tensor import Storage, Tensor, wrap
from .types.wide import FEWEST, SHORT

_new = object.__new__
ndarray = np.ndarray


def _asking(otherwise: Callable) -> Callable:
    """``otherwise``; operands that it refuses may bring a meaning of their own."""

    def run(prim: Primitive, args: tuple, params: dict) -> Any:
        try:
            return otherwise(prim, args, params)
        except TypeError:
            result = overridden(prim, args, params)
            if result is NotImplemented:
                raise
            return result

    return run


def binary(
    prim: Primitive, otherwise: Callable = gate, forward: Callable | None = None
) -> Callable[..., Tensor]:
    """A function of two operands that runs ``prim`` as the gate would. ``otherwise`` stands for
    the gate where the operands are none of the common ones; ``forward`` for that of ``prim``, with
    its bits for the operands that the function is called with."""
    compute: Any = forward or getattr(prim.forward, "on_wide", prim.forward)
    otherwise = _asking(otherwise)
    differentiable = prim.differentiable
    rule_a_reads, rule_b_reads = (prim.save_bits + [0, 0])[:2]
    both_read = rule_a_reads | rule_b_reads
    general = prim.saves_out
    quick = "fdFD" if prim.takes is None or "c" in prim.takes else "fd"
    no_params: dict = {}

    def run(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:  # noqa: A002
        if out is not None:
            return Algebra.into(out, run, (input, other))
        mode = thread.mode
        if mode == SLOW or general or not isinstance(input, Tensor):
            return otherwise(prim, (input, other), no_params)
        x = input.array
        kind = x.dtype
        if isinstance(other, Tensor):
            second, y = other, other.array
            common = kind is y.dtype and kind.char in quick
        else:
            second, y = None, other
            common = (other.__class__ is float or other.__class__ is int) and kind.char in "fd"
        if not common or x.__class__ is not ndarray:
            return otherwise(prim, (input, other), no_params)
        try:
            result = compute(x, y)
        except (ValueError, TypeError):  # also of arrays of another kind
            return otherwise(prim, (input, other), no_params)
        if result.__class__ is not ndarray:
            result = finish(result)
        out = _new(Tensor)
        out.array = result
        if mode or not differentiable:
            return out
        version_a = version_b = 0
        st = input._st
        if st is not None:
            if st.gen != input._gen:
                input._refresh_node()
            version_a = st.version
        node_a = input._node
        node_b = None
        if second is not None:
            st = second._st
            if st is not None:
                if st.gen != second._gen:
                    second._refresh_node()
                version_b = st.version
            node_b = second._node
        if node_a is None and node_b is None:
            return out
        keep = rule_b_reads if node_a is None else rule_a_reads if node_b is None else both_read
        out._node = node = _new(Node)
        node.prim = prim
        node.edges = (node_a, node_b)
        node.saved = (input if keep & 1 else None, other if keep & 2 else None)
        node.params = no_params
        node.shape = result.shape
        node.dtype = result.dtype
        node.seq = next_seq()
        if version_a or version_b:
            node.versions = (version_a, version_b)
        return out

    run.__name__ = run.__qualname__ = prim.name
    run.has_out = True  # type: ignore[attr-defined]
    return run


def unary(prim: Primitive) -> Callable[..., Tensor]:
    """A function of one operand that runs ``prim`` as the gate would."""
    forward = getattr(prim.forward, "on_wide", prim.forward)
    differentiable = prim.differentiable
    reads = prim.save_bits[0] if prim.save_bits else 0
    saves_out = prim.saves_out
    no_params: dict = {}

    def run(input: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002
        if out is not None:
            return Algebra.into(out, run, (input,))
        mode = thread.mode
        if mode == SLOW or not isinstance(input, Tensor):
            return _of_one(prim, input)
        x = input.array
        if x.__class__ is not ndarray or x.dtype.char not in "fd":
            return gate(prim, (input,), no_params)
        result = forward(x)
        if result.__class__ is not ndarray:
            result = finish(result)
        out = _new(Tensor)
        out.array = result
        if mode or not differentiable:
            return out
        version = 0
        st = input._st
        if st is not None:
            if st.gen != input._gen:
                input._refresh_node()
            version = st.version
        node_a = input._node
        if node_a is None:
            return out
        out._node = node = _new(Node)
        node.prim = prim
        node.edges = (node_a,)
        node.saved = (input,) if reads else NOTHING
        node.params = no_params
        node.shape = result.shape
        node.dtype = result.dtype
        node.seq = next_seq()
        if version:
            node.versions = (version,)
        if saves_out:
            node.out = alias = _new(Tensor)
            alias.array = result
        return out

    run.__name__ = run.__qualname__ = prim.name
    run.has_out = True  # type: ignore[attr-defined]
    return run


def _of_one(prim: Primitive, input: Any) -> Any:  # noqa: A002
    if isinstance(input, Tensor):
        return gate(prim, (input,), {})
    said = f"{prim.name}(): argument 'input' (position 1) must be Tensor, not"
    return refused(prim, (input,), f"{said} {type(input).__name__}")


def reducer(prim: Primitive, ufunc: np.ufunc | None = None) -> Callable[..., Any]:
    """``run(a, dims, keepdim)``, as the gate would run the reduction ``prim``; without ``dims``
    over all dimensions. A Tensor and checked dimensions are expected. ``ufunc`` reduces as
    ``prim`` does where elements are few and of no half type."""
    forward, reads, saves_out = prim.forward, prim.save_bits[0], prim.saves_out
    few = None if ufunc is None else ufunc.reduce

    def run(a: Any, dims: tuple | None = None, keepdim: bool = False) -> Any:
        mode = thread.mode
        x = None if mode == SLOW else a.array
        if x.__class__ is not ndarray or x.dtype.kind != "f" or not x.size:
            over = tuple(range(a.ndim)) if dims is None else dims
            return gate(prim, (a,), {"dims": over, "keepdim": keepdim})
        if dims is None:
            dims = ALL_DIMS[x.ndim]
        most = FEWEST if x.ndim - 1 in dims else SHORT  # as ``types.wide.total`` chooses
        if few is None or x.size > most or x.itemsize == 2:
            result = forward(x, dims, keepdim)
        else:
            result = few(x, dims, None, None, keepdim)  # type: ignore[call-arg]
        out = _new(Tensor)
        out.array = result if result.__class__ is ndarray else finish(result)
        if mode:
            return out
        st = a._st
        if st is not None and st.gen != a._gen:
            a._refresh_node()
        node_a = a._node
        if node_a is None:
            return out
        out._node = node = _new(Node)
        node.prim = prim
        node.edges = (node_a,)
        node.saved = (a,) if reads else NOTHING
        node.params = {"dims": dims, "keepdim": keepdim}
        node.shape = result.shape
        node.dtype = result.dtype
        node.seq = next_seq()
        if reads and st is not None:
            node.versions = (st.version,)
        if saves_out:
            node.out = wrap(out.array)
        return out

    run.__name__ = run.__qualname__ = prim.name
    return run


ALL_DIMS = [tuple(range(n)) for n in range(65)]  # numpy's limit is 64


def viewed(prim: Primitive, source: Tensor, array: np.ndarray, params: dict, mode: int) -> Any:
    """The tensor over ``array``, a view of the memory of ``source`` that ``prim`` has made, or
    would make, with ``params``; recorded as the gate would. ``mode`` is RECORD or PLAIN."""
    out = _new(Tensor)
    out.array = array
    st = source._st
    if st is None:
        st = source._st = Storage()
    elif st.gen != source._gen:
        source._refresh_node()
    out._st = st
    out._gen = st.gen
    if mode:
        out._view = (source, None, None, params)
        return out
    out._view = (source, prim, None, params)
    before = source._node
    if before is not None:
        out._node = node = _new(Node)
        node.prim = prim
        node.edges = (before,)
        node.saved = NOTHING
        node.params = params
        node.shape = array.shape
        node.dtype = array.dtype
        node.seq = next_seq()
    return out


def pieces(prim: Primitive, source: Any, params: dict) -> Any:
    """``prim(source, **params)`` for a primitive that gives several views of one tensor."""
    mode = thread.mode
    if mode == SLOW or source.array.__class__ is not ndarray:
        return gate(prim, (source,), params)
    st = source._st
    if st is None:
        st = source._st = Storage()
    elif st.gen != source._gen:
        source._refresh_node()
    gen = st.gen
    how = None if mode else prim
    outs: list = []
    for array in prim.forward(source.array, **params):
        out = _new(Tensor)
        out.array = array
        out._st = st
        out._gen = gen
        out._view = (source, how, len(outs), params)
        outs.append(out)
    before = source._node
    if before is not None and not mode:
        node = Node(prim, (before,), NOTHING, params, None, None)
        node.shapes = tuple([(out.array.shape, out.array.dtype) for out in outs])
        for i, out in enumerate(outs):
            out._node = Output(node, i)
    return tuple(outs)
