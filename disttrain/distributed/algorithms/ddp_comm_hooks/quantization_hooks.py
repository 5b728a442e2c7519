"""Communication hooks that send gradients as 8-bit numbers with a scale.

Every rank quantizes its own gradients between their least and largest value, all are gathered, and
each rank averages what they stand for. A gather grows with the number of ranks, so what is saved
shrinks with it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....comm.group import ProcessGroup
from ....core.tensor import Tensor, wrap
from ....futures import Future
from ...collectives import all_gather_into_tensor
from ...ddp import GradBucket
from ...state import group_or_default

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
    scale, zero = scales[:, :, None]
    return np.clip(np.round(rows / scale) + zero, 0, LEVELS).astype(np.uint8)


def _quantized(
    process_group: ProcessGroup | None, bucket: GradBucket, width: int
) -> Future[Tensor]:
    """Rows of ``width`` elements have a scale each."""
    group = group_or_default(process_group)
    buffer = bucket.buffer()
    n = buffer.array.size
    rows = np.zeros((max(math.ceil(n / max(width, 1)), 1), max(width, 1)), np.float32)
    rows.reshape(-1)[:n] = buffer.array
    mine = ranges(rows)
    scales = np.empty((group.size, *mine.shape), np.float32)
    numbers = group.empty((group.size, *rows.shape), np.uint8)
    told: Any = all_gather_into_tensor(wrap(scales), wrap(mine), group=group, async_op=True)
    sent: Any = all_gather_into_tensor(
        wrap(numbers), wrap(quantize(rows, mine)), group=group, async_op=True
    )

    def mean(future: Future) -> Tensor:
        future.value()
        told.wait()
        total = np.zeros(rows.shape, np.float32)
        for (scale, zero), theirs in zip(scales[:, :, :, None], numbers, strict=True):
            total += scale * (theirs - zero)
        total /= group.size
        np.copyto(buffer.array, total.reshape(-1)[:n], casting="unsafe")
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
