"""One step of training on this rank: forward, backward, update; compiled where that is asked for.

Knows tensors; no epochs, no records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import disttrain as dt

from .settings import Settings
from .strategies import Wrapped

Step = Callable[[list], list]  # (inputs, targets) pairs -> (loss, how many were right) of each


def answer(net: Any, inputs: Any, targets: Any) -> tuple[Any, Any]:
    """The mean loss of a batch, and how many answers were right (on the device, which nobody waits
    for here)."""
    scores = net(inputs)
    scores, targets = scores.reshape(-1, scores.shape[-1]), targets.reshape(-1)
    right = (scores.detach().argmax(-1) == targets).sum()
    return dt.nn.functional.cross_entropy(scores, targets), right


def make_step(wrapped: Wrapped, optimizer: Any, mean: float | None, settings: Settings) -> Step:
    """The step of ``wrapped``. ``mean``: how many samples a rank has on average, where ranks have
    different numbers of them."""
    clip = settings.optim.clip_norm

    def step(batches: list) -> list:
        optimizer.zero_grad()
        found = []
        for inputs, targets in batches:
            loss, right = answer(wrapped.net, inputs, targets)
            wrapped.backward(loss, len(inputs), mean)
            found.append((loss, right))
        if clip is not None:
            wrapped.clip(clip)
        optimizer.step()
        return found

    return dt.compile(step) if settings.train.compile else step
