"""A border for native programs: leaves of trees are tensors and numbers themselves."""

from __future__ import annotations

import numpy as np

import disttrain as dt
from disttrain.func.structured_bodies import Border
from disttrain.tree import Forest


def taken(leaf, what="{value!r} of type {kind} is no tensor"):
    if isinstance(leaf, dt.Tensor):
        return leaf, False
    if isinstance(leaf, (bool, int, float, np.ndarray)):
        return dt.tensor(leaf), not isinstance(leaf, np.ndarray)
    raise TypeError(what.format(value=leaf, kind=type(leaf)))


def met(*kinds):
    return np.result_type(*[kind for kind, _ in kinds])


TREES = Forest()
BORDER = Border(TREES, taken, lambda tensor, weak: tensor, met)
