"""Communication hooks that send gradients as 8-bit numbers with a scale.

Every rank quantizes its own gradients between their least and largest value, all are gathered, and
each rank averages what they stand for. A gather grows with the number of ranks, so what is saved
shrinks with it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....backends.device.memory import memory_of
from ....comm.group.group import ProcessGroup
from ....core.tensor import Tensor, wrap
from ....futures import Future
from ...collectives.tensors import all_gather_into_tensor
from ...ddp import GradBucket
from ...groups.state import group_or_default

LEVELS = 255
_EPS = float(np.finfo(np.float32).eps)


def ranges(rows: np.ndarray) -> np.ndarray:
    """(2, number of rows): the scale and the zero point of each row, so that 0 is exact."""
    low, high = np.minimum(rows.min(1), 0), np.maximum(rows.max(1), 0)
    scale = np.maximum((high - low) / LEVELS, _EPS).astype(np.float32)
    zero = np.clip(-np.round(low / scale), 0, LEVELS)
    return np.stack([scale, zero]).astype(np.float32)


def quantize(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Each row as numbers of 0 to 255."""
    scale, zero = scales[0][:, None], scales[1][:, None]
    levels = rows / scale
    np.rint(levels, out=levels)
    levels += zero
    np.clip(levels, 0, LEVELS, out=levels)
    return levels.astype(np.uint8)


def dequantized_mean(numbers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The mean over ranks of what their ``numbers`` (rank, row, column) stand for."""
    total = np.zeros_like(numbers[0], np.float32)
    for rank in range(len(numbers)):
        values = numbers[rank].astype(np.float32)
        values -= scales[rank, 1][:, None]
        values *= scales[rank, 0][:, None]
        total += values
    total /= len(numbers)
    return total


def _in_rows(values: np.ndarray, width: int) -> np.ndarray:
    """``values`` in rows of ``width``, the last one filled up with zeros."""
    n = values.size
    if n == width and values.dtype == np.float32:
        return values.reshape(1, n)
    shape = (max(math.ceil(n / max(width, 1)), 1), max(width, 1))
    rows = np.zeros_like(values, np.float32, shape=shape)
    rows.reshape(-1)[:n] = values
    return rows


def _quantized(
    process_group: ProcessGroup | None, bucket: GradBucket, width: int
) -> Future[Tensor]:
    """Rows of ``width`` elements have a scale each."""
    group = group_or_default(process_group)
    buffer = bucket.buffer()
    memory = memory_of(buffer.array)
    given, held = memory.raw(buffer.array), memory.held
    n = given.size
    rows = _in_rows(given, width)
    mine = ranges(rows)
    scales = memory.empty((group.size, *mine.shape), np.float32)
    numbers = memory.flat(group, group.size * rows.size, np.uint8)
    numbers = numbers.reshape(group.size, *rows.shape)
    told: Any = all_gather_into_tensor(
        wrap(held(scales)), wrap(held(mine)), group=group, async_op=True
    )
    sent: Any = all_gather_into_tensor(
        wrap(held(numbers)), wrap(held(quantize(rows, mine))), group=group, async_op=True
    )

    def mean(future: Future) -> Tensor:
        future.value()
        told.wait()
        total = dequantized_mean(numbers, scales)
        np.copyto(given, total.reshape(-1)[:n], casting="unsafe")
        return buffer

    return sent.get_future().then(mean)


def quantization_pertensor_hook(
    process_group: ProcessGroup | None, bucket: GradBucket
) -> Future[Tensor]:
    """Average gradients that travel as 8-bit numbers with one scale per bucket."""
    return _quantized(process_group, bucket, bucket.buffer().array.size)


def quantization_perchannel_hook(
    process_group: ProcessGroup | None, bucket: GradBucket, bucket_size: int = 512
) -> Future[Tensor]:
    """As ``quantization_pertensor_hook``, with one scale per ``bucket_size`` elements."""
    return _quantized(process_group, bucket, bucket_size)


__all__ = ["quantization_perchannel_hook", "quantization_pertensor_hook"]
