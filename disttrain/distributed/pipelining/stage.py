"""One stage: a module and what it keeps of each micro-batch between forward and backward.

Knows modules and the engine; messages and order are the executor's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ... import nn, ops, tree
from ...comm.group.group import ProcessGroup
from ...core.annotations import DeviceLike
from ...core.backward import autograd
from ...core.backward.split_walk import Rest, backward_inputs
from ...core.tensor import Tensor
from ...errors import ConfigError
from ..groups.state import group_or_default
from .sync import GradSync
from .weighing import Count


@dataclass
class _Flight:
    """A micro-batch between its forward and its backward.

    ``inputs``: tensors from the stage before; ``outputs``: tensors for the next one (or the loss).
    ``later``: the part of its backward that is left."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    later: Callable[[], Any] | None = field(default=None, repr=False)


class PipelineStage:
    """Stage ``stage_index`` of ``num_stages``: ``submodule`` on a rank of ``group``.

    The first stage is called with what ``schedule.step`` was given, the others with what the stage
    before returned: a tuple or list as that many positional arguments, anything else as one.
    Keyword arguments of ``step`` go to the stages of the rank on which it was called. A value that
    a later stage needs is returned along (a skip connection is one more result).

    ``input_args``, ``output_args``, ``output_grads``, ``input_grads``: examples, which need not be
    given: shapes travel with the first micro-batch. ``dw_builder()`` gives a function that computes
    the gradients of the weights of the last backward, for modules that put these off themselves.
    """

    def __init__(
        self,
        submodule: nn.Module,
        stage_index: int,
        num_stages: int,
        device: DeviceLike | None = None,
        input_args: object = None,
        output_args: object = None,
        output_grads: object = None,
        input_grads: object = None,
        group: ProcessGroup | None = None,
        dw_builder: Callable[[], Callable[..., None]] | None = None,
        get_mesh: object = None,
    ) -> None:
        if not 0 <= stage_index < num_stages:
            raise ConfigError(
                f"PipelineStage: stage_index={stage_index} of num_stages={num_stages} was given; "
                f"needed is 0 <= stage_index < num_stages"
            )
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device, self.group = device, group_or_default(group)
        if self.group.size > num_stages:
            raise ConfigError(
                f"PipelineStage: {num_stages} stages for a group of {self.group.size} ranks; every "
                "rank needs a stage of its own: cut the model into more, or give a smaller group"
            )
        self.dw_builder = dw_builder
        self.sync = GradSync(submodule)
        self._flights: dict[int, _Flight] = {}

    def __repr__(self) -> str:
        return f"PipelineStage({self.stage_index} of {self.num_stages}, {self.group!r})"

    @property
    def group_rank(self) -> int:
        return self.group.rank

    @property
    def group_size(self) -> int:
        return self.group.size

    @property
    def is_first(self) -> bool:
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        return self.stage_index == self.num_stages - 1

    def begin(self) -> None:
        """A step begins."""
        self.clear_runtime_states()
        self.sync.begin()

    def clear_runtime_states(self) -> None:
        """Forget all micro-batches."""
        self._flights.clear()

    def forward(self, micro: int, args: tuple, kwargs: dict, received: bool, keep: bool) -> Any:
        """What the module returns for ``micro``. ``received``: ``args`` come from another stage;
        ``keep``: a backward will follow."""
        with self.sync.forward():
            out = self.submod(*args, **kwargs)
        if keep:
            inputs = _tensors(args) if received else []
            self._flights[micro] = _Flight(inputs, _tensors(handed_on(out)))
        return out

    def set_loss(self, micro: int, loss: Tensor) -> None:
        """The backward of ``micro`` starts at ``loss``."""
        self._flights[micro].outputs = [loss]

    def no_grads(self, micro: int) -> tuple:
        """Gradients of what the stage gave for ``micro``, of which nothing counts."""
        return tuple(ops.zeros_like(t, requires_grad=False) if t.requires_grad else None
                     for t in self._flights[micro].outputs)  # fmt: skip

    def backward(self, micro: int, grads: tuple, last: bool, count: Count | None = None) -> tuple:
        """The whole backward; the gradients of the tensors that came from the stage before."""
        flight = self._flights.pop(micro)
        with self.sync.backward(last, count=count):
            return self._whole(flight, grads)

    def backward_input(self, micro: int, grads: tuple, count: Count | None = None) -> tuple:
        """The part that the stage before waits for."""
        flight = self._flights[micro]
        if self.dw_builder is not None:
            with self.sync.backward(False, parts=True, count=count, counts=False):
                found = self._whole(flight, grads)
            flight.later = self.dw_builder()
            return found
        leaves = [t for t in flight.inputs if t.requires_grad]
        roots, seeds = _roots(flight.outputs, grads)
        flight.outputs = []
        if not roots:
            return (None,) * len(flight.inputs)
        if not leaves:  # nobody waits
            flight.later = lambda: autograd.backward(roots, seeds)
            return (None,) * len(flight.inputs)
        rest: Rest
        with self.sync.backward(False, parts=True, count=count, counts=False):
            found, rest = backward_inputs(roots, seeds, leaves)
        flight.later = rest.run
        by_leaf = {id(t): g for t, g in zip(leaves, found, strict=True)}
        return tuple(by_leaf.get(id(t)) for t in flight.inputs)

    def backward_weight(self, micro: int, last: bool, count: Count | None = None) -> None:
        """The part that ``backward_input`` has left."""
        flight = self._flights.pop(micro)
        with self.sync.backward(last, parts=True, count=count):
            if flight.later is not None:
                flight.later()

    def _whole(self, flight: _Flight, grads: tuple) -> tuple:
        roots, seeds = _roots(flight.outputs, grads)
        flight.outputs = []
        if roots:
            autograd.backward(roots, seeds)
        found = tuple(t.grad for t in flight.inputs)
        for t in flight.inputs:
            t.grad = None
        return found


def handed_on(out: Tensor | list | tuple) -> tuple:
    """What a stage returned, as the positional arguments of the next."""
    if isinstance(out, tuple) and not hasattr(out, "_fields"):
        return out
    return tuple(out) if isinstance(out, list) else (out,)


def passed(args: tuple) -> tuple:
    """``args`` for a stage on the same rank: the same memory, each tensor a graph's beginning."""
    return tree.map(_leaf, args)


def _leaf(x: Tensor) -> Any:
    if not isinstance(x, Tensor):
        return x
    t = x.detach()
    return t.requires_grad_() if x.requires_grad else t


def _tensors(value: tuple) -> list[Tensor]:
    return [t for t in tree.leaves(value) if isinstance(t, Tensor)]


def _roots(outputs: list[Tensor], grads: tuple) -> tuple[list, list]:
    pairs = [
        (t, g) for t, g in zip(outputs, grads, strict=True) if g is not None and t.requires_grad
    ]
    return [t for t, _ in pairs], [g for _, g in pairs]
