"""Communication hooks that average gradients: as they are, or cast to a half type on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....backends.device.memory import memory_of
from ....backends.fused.casts import scaled
from ....core import no_grad
from ....core.tensor import Tensor, wrap
from ....core.types import dtypes
from ....core.writes import touched
from ....futures import Future
from ...collectives.tensors import all_reduce
from ...ddp import GradBucket
from ...groups.process_group import ProcessGroup
from ...groups.state import group_or_default

Hook = Callable[[Any, GradBucket], Future]


def started(tensor: Tensor, group: ProcessGroup) -> Any:
    """A sum of ``tensor`` over the ranks, under way."""
    return all_reduce(tensor, group=group, async_op=True)


def averaged(process_group: ProcessGroup | None, tensor: Tensor) -> Future[Tensor]:
    """``tensor`` divided by the number of ranks, then summed over them, in place."""
    group = group_or_default(process_group)
    with no_grad():
        tensor.mul_(1.0 / group.size)
    return started(tensor, group).get_future().then(first)


def first(future: Future) -> Tensor:
    """The one tensor of a collective's future."""
    return future.value()[0]


def allreduce_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """Average the gradients over the ranks: what DDP does without a hook, bit by bit."""
    return averaged(process_group, bucket.buffer())


def _cast_hook(
    kind: dtypes.dtype, process_group: ProcessGroup | None, bucket: GradBucket
) -> Future[Tensor]:
    """Divide and cast in one pass into memory that the group sends from; half the bytes travel.
    Sums are formed in float32 and rounded once."""
    group = group_or_default(process_group)
    buffer: Any = bucket.buffer()
    memory = memory_of(buffer.array)
    given = memory.raw(buffer.array)
    sent = memory.flat(group, given.size, kind.np)
    scaled(given, 1.0 / group.size, sent)
    future = started(wrap(memory.held(sent)), group).get_future()

    def cast_back(future: Future) -> Tensor:
        scaled(memory.raw(first(future).array), 1.0, given)
        touched(buffer)
        return buffer

    return future.then(cast_back)


def fp16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """Average gradients that travel as float16. They are divided first, so that the sum does not
    overflow where the average would not."""
    return _cast_hook(dtypes.float16, process_group, bucket)


def bf16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """Average gradients that travel as bfloat16: fewer digits than float16, the range of
    float32."""
    return _cast_hook(dtypes.bfloat16, process_group, bucket)


def _cast_wrapper(kind: dtypes.dtype, hook: Hook, name: str) -> Hook:
    def wrapped(hook_state: object, bucket: GradBucket) -> Future[Tensor]:
        wide: Any = bucket.buffer()
        memory = memory_of(wide.array)
        given = memory.raw(wide.array)
        narrow = scaled(given, 1.0, memory.empty(given.shape, kind.np))
        bucket.set_buffer(wrap(memory.held(narrow)))
        future = hook(hook_state, bucket)

        def cast_back(future: Future) -> Tensor:
            scaled(memory.raw(future.value().array).reshape(-1), 1.0, given)
            touched(wide)
            bucket.set_buffer(wide)
            return wide

        return future.then(cast_back)

    wrapped.__name__ = wrapped.__qualname__ = name
    return wrapped


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """``hook`` on gradients cast to float16; its result is cast back."""
    return _cast_wrapper(dtypes.float16, hook, "fp16_compress_wrapper_hook")


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """``hook`` on gradients cast to bfloat16; its result is cast back."""
    return _cast_wrapper(dtypes.bfloat16, hook, "bf16_compress_wrapper_hook")


__all__ = [
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
]
