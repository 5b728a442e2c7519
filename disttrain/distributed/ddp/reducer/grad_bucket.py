"""What a communication hook is given: the gradients of one bucket. Knows no reducer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....backends.device.memory import memory_of
from ....core.tensor import Tensor, wrap
from ....errors import DTypeError, ShapeError
from ....futures import Future
from .buckets import Bucket


class GradBucket:
    """Gradients that are reduced together, one behind the other in one flat tensor."""

    def __init__(
        self, plan: Bucket, index: int, last: bool, flat: Any, params: Sequence[Tensor]
    ) -> None:
        self._plan, self._index, self._last = plan, index, last
        self._flat = flat
        self._buffer = wrap(flat)
        self._params = list(params)

    def __repr__(self) -> str:
        return f"GradBucket(index={self._index}, {len(self._params)} parameters)"

    def index(self) -> int:
        """Its number among the buckets of an iteration, in the order of reduction."""
        return self._index

    def is_last(self) -> bool:
        """Whether no bucket comes after it in this iteration."""
        return self._last

    def buffer(self) -> Tensor:
        """The flat 1-D tensor of all gradients; not divided by anything."""
        return self._buffer

    def gradients(self) -> list[Tensor]:
        """Each parameter's gradient: a view of the buffer, in the parameter's shape."""
        pairs = zip(self._plan.slots, self._params, strict=True)
        flat: Any = self._buffer
        return [flat[s.offset : s.offset + s.numel].view(p.shape) for s, p in pairs]

    def parameters(self) -> list[Tensor]:
        """The parameters, in the order of ``gradients``."""
        return list(self._params)

    def set_buffer(self, tensor: Tensor) -> None:
        """Let ``tensor``, of as many elements, be the buffer; its type may be another one. The
        gradients are views of it from now on. What DDP takes is the result of the hook."""
        check(self._flat, tensor, "GradBucket.set_buffer")
        memory = memory_of(tensor.array)
        flat = memory.held(memory.raw(tensor.array).reshape(-1))
        self._buffer = tensor if tensor.array.ndim == 1 else wrap(flat)


def result_of(future: Future, seconds: float, what: str) -> Any:
    """What a hook's ``future`` gives, at most so many ``seconds`` from now; the one tensor of a
    collective's list."""
    answer = future.wait_for(seconds, what) if isinstance(future, Future) else future.wait()
    return answer[0] if isinstance(answer, (list, tuple)) and len(answer) == 1 else answer


def fill(flat: Any, tensor: Tensor, where: str) -> None:
    """``flat``, what a bucket holds, gets the values of ``tensor``, which may be it itself."""
    check(flat, tensor, where)
    memory = memory_of(flat)
    target, source = memory.raw(flat), memory.raw(tensor.array)
    if source is not target:
        np.copyto(target, source.reshape(-1), casting="unsafe")


def check(flat: np.ndarray, tensor: Tensor, where: str) -> None:
    """``tensor`` can hold the gradients of ``flat``."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{where}: a Tensor is needed, {type(tensor).__name__} was given")
    given = tensor.array
    if given.size != flat.size:
        raise ShapeError(
            f"{where}: a tensor of {given.size} elements was given; the bucket has {flat.size}; "
            "give one value for each of its elements"
        )
    if not np.can_cast(given.dtype, flat.dtype, "same_kind") and given.dtype.kind != "V":
        raise DTypeError(
            f"{where}: a tensor of {given.dtype.name} was given for a bucket of {flat.dtype.name}"
        )
