"""Functions and modules whose forward and backward are graphs: ``make_graphed_callables``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import tree
from ..autograd import Function, grad
from ..core.tensor import Tensor
from ..errors import ConfigError
from ..nn.module import Module
from ..ops.api import empty_like
from .devices import synchronize
from .graphs import CUDAGraph, graph, graph_pool_handle
from .streams import Stream, current_stream


class _Recorded:
    """One callable: tensors that keep their memory, and two graphs over them."""

    def __init__(self, fn: Callable, args: Sequence, allow_unused: bool) -> None:
        self.fn, self.args, self.allow_unused = fn, tuple(args), allow_unused
        leaves = tree.leaves(self.args)
        if not all(isinstance(x, Tensor) for x in leaves):
            raise ConfigError(
                "make_graphed_callables: In the beta API, sample_args for each callable must "
                "contain only Tensors. Other types are not allowed."
            )
        self.count = len(leaves)
        params = tuple(fn.parameters()) if isinstance(fn, Module) else ()
        self.inputs: tuple[Tensor, ...] = (*leaves, *params)
        self.wanted = [i for i, t in enumerate(self.inputs) if t.requires_grad]
        self.forward, self.backward = CUDAGraph(), CUDAGraph()
        self.outputs: list[Tensor] = []
        self.given: list[Tensor | None] = []  # what comes back for the outputs
        self.found: list[Tensor | None] = []  # what that makes of the inputs

    def run(self) -> list[Tensor]:
        out, self.rebuild = tree.flatten(self.fn(*self.args))
        return out

    def pull(self, outputs: list[Tensor], given: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients of the inputs, in their places."""
        pairs = [(o, g) for o, g in zip(outputs, given, strict=True) if g is not None]
        found: list[Tensor | None] = [None] * len(self.inputs)
        if self.wanted and pairs:
            grads = grad(
                [o for o, _ in pairs],
                [self.inputs[i] for i in self.wanted],
                grad_outputs=[g for _, g in pairs],
                allow_unused=self.allow_unused,
            )
            for i, g in zip(self.wanted, grads, strict=True):
                found[i] = g
        return found

    def warm_up(self) -> None:
        outputs = self.run()
        self.pull(outputs, _like(outputs))

    def capture_forward(self, pool: Any) -> None:
        with graph(self.forward, pool):
            self.outputs = self.run()

    def capture_backward(self, pool: Any) -> None:
        self.given = _like(self.outputs)
        if self.wanted and any(g is not None for g in self.given):
            with graph(self.backward, pool):
                self.found = self.pull(self.outputs, self.given)

    def callable(self) -> Callable:
        """The function that replays."""
        recorded = self

        class Graphed(Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Tensor) -> tuple:
                for own, new in zip(recorded.inputs[: recorded.count], inputs):
                    if own.array is not new.array:
                        own.detach().copy_(new)  # type: ignore[attr-defined]
                recorded.forward.replay()
                return tuple([o.detach() for o in recorded.outputs])

            @staticmethod
            def backward(ctx: Any, *grads: Tensor | None) -> tuple:
                for own, new in zip(recorded.given, grads, strict=True):
                    if own is not None and new is not None:
                        own.copy_(new)  # type: ignore[attr-defined]
                if not recorded.found:
                    return (None,) * len(recorded.inputs)
                recorded.backward.replay()
                return tuple([None if g is None else g.detach() for g in recorded.found])

        def run(*args: Any) -> Any:
            leaves = tree.leaves(args)
            if len(leaves) != recorded.count:
                raise ConfigError(
                    f"a graphed callable: {len(leaves)} tensors given; it was made for "
                    f"{recorded.count}"
                )
            out = Graphed.apply(*leaves, *recorded.inputs[recorded.count :])
            return recorded.rebuild(list(out) if isinstance(out, tuple) else [out])

        return run


def _like(outputs: list[Tensor]) -> list[Tensor | None]:
    return [empty_like(o).fill_(0) if o.requires_grad else None for o in outputs]


def make_graphed_callables(
    callables: Any, sample_args: Any, num_warmup_iters: int = 3,
    allow_unused_input: bool = False, pool: Any = None,
) -> Any:  # fmt: skip
    """Functions or modules (one, or a tuple in the order in which they will run) that do the same
    by replaying graphs. ``sample_args``: arguments of the shapes and types of all later ones; for a
    tuple of callables, a tuple of such tuples. A module is changed in place, and runs as before in
    the other mode (training or not) than that it has now."""
    alone = not isinstance(callables, tuple)
    each, samples = ((callables,), (sample_args,)) if alone else (callables, sample_args)
    made = [_Recorded(fn, args, allow_unused_input) for fn, args in zip(each, samples, strict=True)]
    side = Stream()
    synchronize()
    with side:
        for one in made:
            for _ in range(num_warmup_iters):
                one.warm_up()
    current_stream().wait_stream(side)
    synchronize()
    memory = graph_pool_handle() if pool is None else pool
    for one in made:
        one.capture_forward(memory)
    for one in reversed(made):
        one.capture_backward(memory)
    out = [_given_back(fn, one.callable()) for fn, one in zip(each, made, strict=True)]
    return out[0] if alone else tuple(out)


def _given_back(fn: Any, graphed: Callable) -> Any:
    if not isinstance(fn, Module):
        return graphed
    plain, mode = fn.forward, fn.training

    def forward(*args: Any, **kwargs: Any) -> Any:
        return graphed(*args) if fn.training == mode and not kwargs else plain(*args, **kwargs)

    fn.forward = forward  # type: ignore[method-assign]
    return fn


__all__ = ["make_graphed_callables"]
