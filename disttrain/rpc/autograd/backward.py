"""``backward`` over the graph of all workers: checks, the plan, and the part of who calls it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...core.backward.autograd import as_tensors, cotangents_for
from ...core.tensor import Tensor
from ...errors import AutogradError
from ...profiler import record_function
from ..calls.current import current_agent
from .contexts import contexts_of
from .packets import FAST, KEEP, RECORD
from .passes import run_pass


def backward(
    context_id: int,
    roots: Sequence[Tensor],
    retain_graph: bool = False,
    *,
    gradients: Sequence[Tensor | None] | None = None,
    create_graph: bool = False,
    mode: str = "smart",
) -> None:
    """Add the gradients of ``roots`` to those of context ``context_id``, on every worker that has
    leaves they were computed from; ``.grad`` is left alone. Returns when all workers are done.

    ``roots``: tensors of this worker, scalars unless ``gradients`` are given for them.
    ``retain_graph``: keep the graph, on all workers, for another pass. ``create_graph``: record the
    pass itself, so that a later one goes through the gradients, across workers.

    ``mode``: "smart" finds out which calls the roots were computed from; results that were not used
    get no gradients. "fast" is for programs that use the result of every call, and says so where
    one was not (PyTorch's waits for ever).

    Raises ``AutogradError`` ("Error on Node 1: ...", with the worker's name and traceback) when a
    worker's part raised, ``PeerFailed`` when a worker died. Nothing is left of the pass then, and
    the context may be used again.
    """
    _check_arguments(context_id, roots)
    if mode not in ("fast", "smart"):
        raise ValueError(f"backward: mode={mode!r} given; 'smart' or 'fast' is needed")
    agent = current_agent()
    contexts = contexts_of(agent)
    context = contexts.find(context_id)
    roots = tuple(roots)
    _check_roots(roots, gradients)
    cotangents = cotangents_for("backward", roots, gradients)
    nodes = [t.graph_node() for t in roots]
    tensors = as_tensors(roots, cotangents, create_graph)
    fed = [(n, g if tensors else g.array) for n, g in zip(nodes, cotangents, strict=True)]
    flags = KEEP * (retain_graph or create_graph) | RECORD * create_graph | FAST * (mode == "fast")
    with record_function("torch::distributed::autograd::backward"):
        run_pass(agent, contexts, context, fed, flags, tensors)


def _check_arguments(context_id: object, roots: object) -> None:
    listed = isinstance(roots, (list, tuple)) and all(isinstance(t, Tensor) for t in roots)
    if isinstance(context_id, int) and listed:
        return
    raise TypeError(
        "backward(): incompatible function arguments. The following argument types are supported: "
        "(context_id: int, roots: list[Tensor], retain_graph: bool = False); "
        f"{type(context_id).__name__} and {type(roots).__name__} were given"
    )


def _check_roots(roots: tuple, gradients: Any) -> None:
    if not roots:
        raise AutogradError("backward: No tensors provided for gradient computation.")
    for i, t in enumerate(roots):
        where = f"backward: root {i}, a tensor of shape {list(t.shape)},"
        if not t.requires_grad:
            raise AutogradError(
                f"{where} requires_grad not set on root: nothing that requires grad has made it"
            )
        given = gradients is not None and gradients[i] is not None
        if not given and math.prod(t.shape) != 1:
            raise AutogradError(
                f"{where} is not a scalar, all roots need to be scalar; reduce it (.sum()), or "
                "pass gradients= for it"
            )
        if t.grad_fn is None:
            raise AutogradError(f"{where} does not have a valid gradient function: it is a leaf")
