"""``backward`` and ``grad``: how a program asks for gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from ...backends.array_kinds import ArrayKind
from ...context import SLOW, thread
from ...errors import AutogradError, DeviceError, DTypeError, ShapeError
from ..algebra import Algebra
from ..gate import Tracer
from ..grad_mode import set_state
from ..node import GradientEdge, Output
from ..tensor import Tensor, wrap
from .engine import Walk, discard
from .sink import accumulate


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: object = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradients of ``tensors`` to the ``.grad`` of the leaves (or only of ``inputs``).

    Roots that are not scalars need ``grad_tensors`` of their shapes. Raises ``AutogradError`` when
    nothing requires grad, or a graph was already used up.
    """
    roots = (tensors,) if _one(tensors) else tuple(tensors)
    cotangents = cotangents_for("backward", roots, grad_tensors)
    if inputs is not None:
        inputs = (inputs,) if _one(inputs) else tuple(inputs)
        if not inputs:
            raise AutogradError(
                "backward: inputs= was given but is empty; name a tensor, or drop it"
            )
    targets = None if inputs is None else _to_inputs(inputs)
    tensors_walk = as_tensors(roots + (inputs or ()), cotangents, create_graph)
    walk = _walk(roots, accumulate, retain_graph, create_graph, tensors_walk, targets)
    _drive(walk, roots, cotangents, create_graph)


def backward_into(sink: Callable, tensors: Sequence[Tensor], grad_tensors: list) -> None:
    """As ``backward``, with the gradients of leaves going to ``sink(accumulator, gradient)``."""
    roots = tuple(tensors)
    cotangents = cotangents_for("backward", roots, grad_tensors)
    walk = _walk(roots, sink, None, False, as_tensors(roots, cotangents, False), None)
    _drive(walk, roots, cotangents, False)


def _one(value: object) -> bool:
    return isinstance(value, (Tensor, GradientEdge))


def _to_inputs(inputs: tuple) -> set:
    """The nodes of ``inputs``; those that are no leaves keep their gradients."""
    targets = set()
    for i, t in enumerate(inputs):
        targets.add(place("backward", i, t)[0])
        t.retain_grad()
    return targets


def place(where: str, i: int, t: Tensor) -> tuple[Any, int]:
    """The node of ``t``, and which of its outputs it is."""
    node = t.graph_node()
    if node is None:
        raise AutogradError(
            f"{where}: input {i} of shape {list(t.meta()[0])} does not require grad; call "
            "requires_grad_() on it before it is used"
        )
    return (node.node, node.index) if node.__class__ is Output else (node, 0)


def grad(
    outputs: Tensor | GradientEdge | Sequence[Tensor | GradientEdge],
    inputs: Tensor | GradientEdge | Sequence[Tensor | GradientEdge],
    grad_outputs: object = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
    within: Callable[[Any], bool] | None = None,
) -> tuple:
    """The gradients of ``outputs`` with respect to ``inputs``, one per input, ``.grad`` untouched.

    ``allow_unused``: give None for an input that the outputs do not depend on (an error
    otherwise); ``materialize_grads``: give zeros instead. ``within``: which nodes gradients go
    through; all others are constants.
    """
    roots: tuple[Any, ...] = (outputs,) if _one(outputs) else tuple(outputs)
    wanted: tuple[Any, ...] = (inputs,) if _one(inputs) else tuple(inputs)
    if allow_unused is False and materialize_grads:
        raise ValueError(
            "grad: allow_unused=False and materialize_grads=True contradict each other: zeros "
            "stand for the gradients of unused inputs; drop one of the two"
        )
    cotangents = cotangents_for("grad", roots, grad_outputs)
    places = [place("grad", i, t) for i, t in enumerate(wanted)]
    tensors_walk = as_tensors(roots + wanted, cotangents, create_graph)
    walk = _walk(
        roots, discard, retain_graph, create_graph, tensors_walk, {node for node, _ in places},
        within,
    )  # fmt: skip
    for node, index in places:
        walk.captures.setdefault(node, {})[index] = None
    _drive(walk, roots, cotangents, create_graph)
    return tuple(
        _result(i, t, walk.captures[node][index], allow_unused, materialize_grads, create_graph)
        for i, (t, (node, index)) in enumerate(zip(wanted, places, strict=True))
    )


def _result(
    i: int,
    t: Tensor,
    g: Tensor | ndarray | None,
    allow_unused: bool | None,
    materialize: bool,
    create_graph: bool,
) -> Any:
    if g is not None:
        return g if isinstance(g, Tensor) else wrap(g)
    if materialize:  # (what follows may differentiate any of the results)
        kind = not isinstance(t, Tracer) and t.array.__class__ is not np.ndarray
        zeros = wrap(t.array.zeros()) if kind else Algebra.zeros(*t.meta())
        return zeros.requires_grad_(create_graph)
    if not allow_unused:
        raise AutogradError(
            f"grad: input {i} of shape {list(t.meta()[0])} appears to not have been used in "
            "the graph of the outputs; pass allow_unused=True to get None for it"
        )
    return None


def _walk(
    roots: tuple,
    sink: Callable[..., Any],
    keep: bool | None,
    create: bool,
    tensors: bool,
    targets: set | None,
    within: Callable[[Any], bool] | None = None,
) -> Walk:
    return Walk(
        [t.graph_node() for t in roots],
        sink,
        keep=create if keep is None else keep,
        tensors=tensors,
        targets=targets,
        through=sink is not discard,
        within=within,
    )


def _drive(walk: Walk, roots: tuple, cotangents: tuple, create_graph: bool) -> None:
    before = thread.grad_enabled
    set_state({"grad_enabled": create_graph})
    try:
        for t, g in zip(roots, cotangents, strict=True):
            walk.feed(t.graph_node(), g if walk.tensors else g.array)
        walk.run()
    finally:
        set_state({"grad_enabled": before})


def as_tensors(roots: tuple, cotangents: tuple, create_graph: bool) -> bool:
    """Whether gradients must travel as Tensors, because something looks at the operations."""
    if create_graph or any(isinstance(t, Tracer) for t in roots + cotangents):
        return True
    if thread.mode == SLOW and not all(getattr(i, "by_nodes", False) for i in thread.stack):
        return True
    return any(t.is_meta for t in roots)


def cotangents_for(where: str, roots: tuple, given: object) -> tuple:
    if given is None:
        given = (None,) * len(roots)
    given = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if len(given) != len(roots):
        raise AutogradError(f"{where}: {len(given)} gradients given for {len(roots)} tensors")
    return tuple(
        _cotangent(where, i, t, g) for i, (t, g) in enumerate(zip(roots, given, strict=True))
    )


def _cotangent(where: str, i: int, t: Tensor, g: Tensor | None) -> Tensor:
    if t.graph_node() is None:
        raise AutogradError(
            f"{where}: tensor {i} of shape {list(t.meta()[0])} does not require grad and was made "
            "by nothing that does; call requires_grad_() on the inputs, and check that the forward "
            "did not run under no_grad() or through .detach(), .data or .numpy()"
        )
    shape, kind = t.meta()
    if g is None:
        if kind.kind == "c":
            raise AutogradError(
                f"{where}: tensor {i} is {kind}; grad can be implicitly created only for real "
                "scalar outputs: pass the gradient argument, or take .real or .abs() first"
            )
        if math.prod(shape) != 1:
            raise AutogradError(
                f"{where}: the gradient of a tensor of shape {list(shape)} is wanted, but grad can "
                "be implicitly created only for scalar outputs; reduce it first (.sum() or "
                ".mean()), or pass the gradient argument"
            )
        if isinstance(t, Tracer):
            return Algebra.ones_like(t)
        if isinstance(t, Tensor) and t.array.__class__ is not np.ndarray:
            return wrap(t.array.ones())
        return wrap(np.ones(shape, kind))
    if not isinstance(g, Tensor):
        raise TypeError(f"{where}: gradient {i} must be a Tensor or None, not {type(g).__name__}")
    if tuple(g.shape) != tuple(shape):
        raise ShapeError(
            f"{where}: Mismatch in shape: gradient {i} has shape {list(g.shape)}, the tensor has "
            f"{list(shape)}; they must be equal"
        )
    if (g.meta()[1].kind == "c") != (kind.kind == "c"):
        raise DTypeError(
            f"{where}: gradient {i} is {g.dtype!r}, the tensor is {kind}; they are required to "
            "have the same dtype where one of them is complex"
        )
    if isinstance(t, GradientEdge):
        return g
    here = g.__dict__.get("array").__class__ is ndarray is t.__dict__.get("array").__class__
    if not here:
        g = _beside(where, i, t, g)
    return _of_kind(t, g)


def _beside(where: str, i: int, t: Tensor, g: Tensor) -> Tensor:
    """``g`` on the device of ``t``: numbers are sent there, others must lie there."""
    if g.device == t.device or g.is_meta:
        return g
    if not g.ndim:
        return g.to(t.device)
    raise DeviceError(
        f"{where}: gradient {i} is on {g.device}, the tensor on {t.device}; Expected all "
        "tensors to be on the same device: move it with .to(tensor.device)"
    )


def _of_kind(t: Tensor, g: Tensor) -> Tensor:
    """``g`` as a tensor of the kind that ``t`` is of, where one of them is distributed."""
    mine, given = t.__dict__.get("array"), g.__dict__.get("array")
    if isinstance(given, ArrayKind) and mine.__class__ is np.ndarray:
        return given.whole_of(g)
    if isinstance(mine, ArrayKind) and given.__class__ is np.ndarray:
        return mine.taken_in(g)
    return g
