"""Distributed autograd: one backward over graphs that calls have spread over workers.

with distributed.autograd.context() as context_id:
    loss = rpc.rpc_sync("worker1", f, args=(x,)).sum()
    distributed.autograd.backward(context_id, [loss])
    grads = distributed.autograd.get_gradients(context_id)

contexts         a worker's part of one
nodes            what messages leave in the graph: send and receive
header, rider    what travels with calls
plan, passes     which messages a backward goes back over (pure); how that is found out
walk             a worker's walk, fed when gradients arrive
participant      its part in a pass
packets          what workers tell each other in one
backward         the call that begins it
service          what is done for others
"""

from __future__ import annotations

from typing import Any

from ...context import thread
from ...core.tensor import Tensor
from ...errors import AutogradError
from ..calls.current import current_agent
from .backward import backward
from .contexts import Contexts, DistAutogradContext, contexts_of, current_contexts
from .rider import within
from .service import install, release

__all__ = [
    "DistAutogradContext", "backward", "context", "get_gradients", "install", "is_available",
]  # fmt: skip


def is_available() -> bool:
    """Whether gradients can go back through calls: always."""
    return True


class context:
    """A distributed forward and backward of this thread: calls made in the block leave a graph.

    Gives the context's id, which ``backward`` and ``get_gradients`` take. Leaving the block forgets
    the graph and the gradients on all workers. Blocks of one thread cannot be nested
    (``AutogradError``); other threads have contexts of their own.
    """

    def __enter__(self) -> int:
        self.autograd_context = _new_context()
        return self.autograd_context._context_id()

    def __exit__(self, *exc: object) -> None:
        _release_context(self.autograd_context._context_id())


def get_gradients(context_id: int) -> dict[Tensor, Tensor]:
    """The gradients that this worker's leaves have in the context, by leaf. The dict is a copy, the
    gradients are the context's own."""
    return current_contexts().find(context_id).all()


def _new_context() -> DistAutogradContext:
    contexts = current_contexts()
    place = thread.autograd_place
    if place is not None:
        raise AutogradError(
            f"Already have an autograd context id for this thread: {place.context.number}; leave "
            "its block before another one is begun"
        )
    new = contexts.begin()
    within(new).__enter__()
    return new


def _release_context(context_id: int) -> None:
    agent = current_agent()
    contexts = contexts_of(agent)
    contexts.find(context_id)
    place = thread.autograd_place
    if place is not None and place.context.number == context_id:
        thread.autograd_place = None
    release(agent, contexts, context_id)


def _current_context() -> DistAutogradContext:
    place = thread.autograd_place
    if place is None:
        raise AutogradError(
            "Current thread doesn't have a valid autograd context. Please wrap your code using: "
            "`with torch.distributed.autograd.context() as context_id` to generate a valid context"
        )
    return current_contexts().find(place.context.number)


def _is_valid_context(context_id: int) -> bool:
    """Raises unless this worker has a part in the context."""
    current_contexts().find(context_id)
    return True


def _retrieve_context(context_id: int) -> DistAutogradContext:
    return current_contexts().find(context_id)


def _get_max_id() -> int:
    return current_contexts().last


def _get_debug_info() -> dict[str, str]:
    """How many contexts this worker has a part in, and how many passes are going on."""
    contexts: Contexts = current_contexts()
    all_ = list(contexts.by_number.values())
    return {
        "num_autograd_contexts": str(len(all_)),
        "num_current_backward_passes": str(sum(len(c.parts) for c in all_)),
    }


def _init(worker_id: object = None) -> bool:
    """Whether there is distributed autograd. Contexts begin with the agent, in ``init_rpc``."""
    return True
