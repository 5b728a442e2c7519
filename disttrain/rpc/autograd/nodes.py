"""The two nodes that a message leaves in the graph: where tensors left, and where they came.

A gradient that reaches ``RecvRpcBackward`` has to go back to the worker that sent the tensors,
where ``SendRpcBackward`` of the same message takes it on. Neither knows how it travels: a walk
that can send gradients is told (``FedWalk.ship``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...context import thread
from ...core.node import GraphNode, Output, next_seq
from ...core.tensor import Tensor

_SOON = 1 << 61  # run as soon as the gradients are complete, right after the leaves


class SendRpcBackward(GraphNode):
    """Where tensors left this worker. Its gradients come from the worker that they went to.

    ``path`` is the message's place in the order of the program (see ``contexts``).
    """

    wants_none = True

    def __init__(self, tensors: Sequence[Tensor], message: int, path: tuple[int, ...]) -> None:
        self.edges = tuple([t.graph_node() for t in tensors])
        self.shapes = tuple([t.meta() for t in tensors])
        self.message, self.path = message, path
        self.seq = next_seq()

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        return len(self.edges)

    def name(self) -> str:
        return "torch::distributed::autograd::SendRpcBackward"

    def run(self, g: Any, tensors: bool, wanted: tuple | None = None) -> tuple:
        return g

    def release(self) -> None:
        """There is nothing to let go of."""


class RecvRpcBackward(GraphNode):
    """Where tensors came to this worker, in the message ``message`` of worker ``peer``. ``go_on``:
    what to do with gradients that an ordinary backward brings."""

    wants_none = True
    seq = _SOON

    def __init__(
        self, context: int, message: int, peer: int, go_on: Callable[[Any, Any, bool], None]
    ) -> None:
        self.context, self.message, self.peer, self.go_on = context, message, peer, go_on

    def take(self, tensors: Sequence[Tensor]) -> None:
        """Be the place in the graph of ``tensors``, which have just been received."""
        if len(tensors) == 1:
            self.shape, self.dtype = tensors[0].meta()
            tensors[0]._node = self
            return
        self.shapes = tuple([t.meta() for t in tensors])
        for i, t in enumerate(tensors):
            t._node = Output(self, i)

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        return 1 if self.shapes is None else len(self.shapes)

    def name(self) -> str:
        return "torch::distributed::autograd::RecvRpcBackward"

    def run(self, g: object, tensors: bool, wanted: tuple | None = None) -> tuple:
        ship = getattr(thread.walking, "ship", None)
        if ship is None:  # an ordinary backward
            self.go_on(self, g, tensors)
        else:
            ship(self, g if g.__class__ is tuple else (g,))
        return ()

    def run_without(self, tensors: bool) -> tuple:
        ship = getattr(thread.walking, "ship", None)
        if ship is not None:
            ship(self, None)
        return ()

    def places(self, g: object) -> list[tuple[Any, Any]]:
        """The places in the graph that have gradients in ``g``, with them."""
        if g.__class__ is not tuple:
            return [(self, g)]
        return [(Output(self, i), each) for i, each in enumerate(g) if each is not None]

    def release(self) -> None:
        """There is nothing to let go of."""
