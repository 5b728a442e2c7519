"""The few operations that the engine needs on gradients. ``ops`` provides those on Tensors."""

from __future__ import annotations

from collections.abc import Callable


class Algebra:
    """Filled in by ``ops``, which the engine does not know."""

    add: Callable
    sum_to: Callable
    cast: Callable
    zeros: Callable
    zeros_like: Callable  # at the level of a transform that a tensor is of
    ones_like: Callable
    clone: Callable
    to_host: Callable
    move_graph: Callable
    into: Callable
