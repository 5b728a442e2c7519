"""Branches and loops: graphs that are attributes, run as often as values say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....ops import api
from ..numbers import Numbers
from ..table import operator

Body = Callable[..., list[Any]]


def _truth(value: Any) -> bool:
    if isinstance(value, Numbers):
        return bool(value.one())
    return bool(value.reshape(())) if isinstance(value, Tensor) else bool(value)


@operator("If", soft=(0,))
def _if(condition: Tensor, *, then_branch: Body, else_branch: Body) -> tuple:
    return tuple(then_branch() if _truth(condition) else else_branch())


@operator("Loop", numbers=(0,), soft=(1,))
def _loop(trips: Any, condition: Any, *carried: Any, body: Body, node: Any) -> tuple:
    """Values go round; what else a round gives is stacked."""
    most = None if trips is None else int(trips.one())
    states = list(carried)
    rows: list[list[Any]] = [[] for _ in range(node.num_outputs - len(carried))]
    going, i = condition is None or _truth(condition), 0
    while going and (most is None or i < most):
        out = body(Numbers([i], (), dtypes.int64), Numbers([True], (), dtypes.bool), *states)
        going = _truth(out[0])
        states = out[1 : 1 + len(states)]
        for row, value in zip(rows, out[1 + len(states) :]):
            row.append(value)
        i += 1
    return (*states, *[_stacked(row) for row in rows])


def _stacked(row: list[Any]) -> Any:
    if not row:
        return api.zeros((0,))
    return np.stack(row) if isinstance(row[0], np.ndarray) else api.stack(row)


def _scanned(given: tuple, body: Body, count: int, words: dict[str, Any]) -> list[Any]:
    """One sequence: states, then stacked results."""
    n = len(given) - count
    states, inputs = list(given[:n]), given[n:]
    axes = words.get("scan_input_axes") or (0,) * count
    back = words.get("scan_input_directions") or (0,) * count
    length = inputs[0].shape[axes[0]]
    rows: list[list[Any]] = []
    for i in range(length):
        parts = [
            x.select(axis, length - 1 - i if reverse else i)
            for x, axis, reverse in zip(inputs, axes, back)
        ]
        out = body(*states, *parts)
        states = out[:n]
        rows = rows or [[] for _ in out[n:]]
        for row, value in zip(rows, out[n:]):
            row.append(value)
    out_axes = words.get("scan_output_axes") or (0,) * len(rows)
    out_back = words.get("scan_output_directions") or (0,) * len(rows)
    stacked = [
        api.stack(row[::-1] if reverse else row, axis)
        for row, axis, reverse in zip(rows, out_axes, out_back)
    ]
    return [*states, *stacked]


@operator("Scan", since=9)
def _scan(*given: Any, body: Body, num_scan_inputs: int, scan_input_axes: Any = None,
          scan_input_directions: Any = None, scan_output_axes: Any = None,
          scan_output_directions: Any = None) -> tuple:  # fmt: skip
    words = {
        "scan_input_axes": scan_input_axes, "scan_input_directions": scan_input_directions,
        "scan_output_axes": scan_output_axes, "scan_output_directions": scan_output_directions,
    }  # fmt: skip
    return tuple(_scanned(given, body, num_scan_inputs, words))


@operator("Scan", until=8)
def _scan_batches(
    lengths: Any, *given: Any, body: Body, num_scan_inputs: int, directions: Any = None
) -> tuple:
    """Version 8 had a batch around, and lengths of its sequences."""
    words = {"scan_input_directions": directions}
    out = []
    for b in range(given[-1].shape[0]):
        length = None if lengths is None else int(lengths[b])
        n = len(given) - num_scan_inputs
        mine = [x[b] if i < n or length is None else x[b, :length] for i, x in enumerate(given)]
        out.append(_scanned(tuple(mine), body, num_scan_inputs, words))
    return tuple(api.stack(list(row)) for row in zip(*out))
