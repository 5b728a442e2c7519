"""``grad``, also for a batch of cotangents at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, overload

from ..core.backward import autograd as core
from ..core.node import GradientEdge
from ..core.tensor import Tensor
from ..errors import AutogradError, ShapeError
from ..func.vmap import vmap
from ..ops.functions.sparse.structured import Structured

Tensors: TypeAlias = Tensor | GradientEdge | Sequence[Tensor | GradientEdge]
GradOutputs: TypeAlias = Tensor | Sequence[Tensor | None] | None


@overload
def grad(
    outputs: Tensors, inputs: Tensors, grad_outputs: GradOutputs = None,
    retain_graph: bool | None = None, create_graph: bool = False, only_inputs: bool = True,
    allow_unused: Literal[False] | None = None, is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]: ...  # fmt: skip
@overload
def grad(
    outputs: Tensors, inputs: Tensors, grad_outputs: GradOutputs = None,
    retain_graph: bool | None = None, create_graph: bool = False, only_inputs: bool = True,
    allow_unused: bool | None = None, is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]: ...  # fmt: skip
def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: GradOutputs = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, one per input, ``.grad`` untouched.

    Both are tensors or graph edges, one or several. ``allow_unused``: give None for an input that
    the outputs do not depend on (an error otherwise); ``materialize_grads``: give zeros instead.
    ``is_grads_batched``: each of ``grad_outputs`` has a batch of cotangents as its first dimension,
    and so has each gradient; the graph is walked once (``vmap``).
    """
    if not is_grads_batched:
        found = core.grad(
            outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused,
            materialize_grads,
        )  # fmt: skip
        return _as_given(inputs, found)
    seeds = grad_outputs if isinstance(grad_outputs, (tuple, list)) else (grad_outputs,)
    if any(s is None for s in seeds):
        raise AutogradError(
            "grad: is_grads_batched=True needs grad_outputs, each with a batch of cotangents as "
            "its first dimension; None was given"
        )
    roots = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    for root, seed in zip(roots, seeds, strict=True):
        if tuple(seed.shape[1:]) != tuple(root.meta()[0]) or not seed.ndim:
            raise ShapeError(
                "grad: If `is_grads_batched=True`, we interpret the first dimension of each "
                "grad_output as the batch dimension. The sizes of the remaining dimensions are "
                f"expected to match the shape of its output, {list(root.meta()[0])}, but the "
                f"grad_output has shape {list(seed.shape)}"
            )
    wanted: Sequence = (inputs,) if isinstance(inputs, (Tensor, GradientEdge)) else tuple(inputs)
    missing: list[int] = []

    def one(*given: Tensor) -> tuple:
        found = core.grad(
            outputs, wanted, given, retain_graph, create_graph, only_inputs, allow_unused,
            materialize_grads,
        )  # fmt: skip
        missing[:] = [i for i, g in enumerate(found) if g is None]
        return tuple(g for g in found if g is not None)

    rows = iter(vmap(one)(*seeds))
    return tuple(None if i in missing else next(rows) for i in range(len(wanted)))


def _as_given(inputs: Tensors, found: tuple) -> tuple:
    """Gradients of sparse tensors, which are those of their values, at their places."""
    one = isinstance(inputs, (Tensor, GradientEdge))
    given: Sequence = (inputs,) if one else tuple(inputs)  # type: ignore[arg-type]
    if not any(isinstance(x, Structured) for x in given):
        return found
    return tuple(
        x.with_values(g) if isinstance(x, Structured) and g is not None else g
        for x, g in zip(given, found, strict=True)
    )
