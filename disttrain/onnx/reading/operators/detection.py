"""Boxes of detected objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....ops import api
from ..table import operator
from .reductions import whole


def _corners(boxes: np.ndarray, centred: int) -> np.ndarray:
    if centred:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    a, b, c, d = boxes.T
    return np.stack([np.minimum(a, c), np.minimum(b, d), np.maximum(a, c), np.maximum(b, d)], 1)


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union."""
    low = np.maximum(box[:2], others[:, :2])
    high = np.minimum(box[2:], others[:, 2:])
    common = (high - low).clip(0, None).prod(1)
    area = (others[:, 2:] - others[:, :2]).prod(1)
    union = (box[2:] - box[:2]).prod() + area - common
    return np.where(union > 0, common / np.where(union > 0, union, 1), 0.0)


@operator("NonMaxSuppression", numbers=(2, 3, 4))
def _non_max_suppression(
    boxes: Tensor, scores: Tensor, most: Any = None, overlap: Any = None, least: Any = None, *,
    center_point_box: int = 0,
) -> Tensor:  # fmt: skip
    found = []
    count, limit, floor = whole(most, 0), whole(overlap, 0.0), whole(least)
    for b, (rows, classes) in enumerate(zip(boxes.numpy(), scores.numpy())):
        corners = _corners(rows, center_point_box)
        for c, score in enumerate(classes):
            order = np.argsort(-score, kind="stable")
            if floor is not None:
                order = order[score[order] > floor]
            for _ in range(count):
                if not order.size:
                    break
                first, order = order[0], order[1:]
                found.append((b, c, first))
                order = order[_overlaps(corners[first], corners[order]) <= limit]
    return api.tensor(np.array(found, np.int64).reshape(-1, 3))
