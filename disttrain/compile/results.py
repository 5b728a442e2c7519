"""What a run of a program leaves: whether replays can give its result again, and what became of the
state of optimizers and random generators."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from .guards.kinds import is_constant, same
from .guards.reach import Reach


def with_numbers(rebuild: Callable[[list], Any], places: list[int]) -> Callable[[list], Any]:
    """``rebuild``, of leaves that are tensors where the program gives their numbers."""
    if not places:
        return rebuild

    def build(leaves: list) -> Any:
        for i in places:
            leaves[i] = leaves[i].item()
        return rebuild(leaves)

    return build


def told_place(why: str) -> str:
    """The place, out of the text of a change."""
    return why.partition(":")[0].removesuffix(" was replaced").removesuffix(" has other entries")


def state_of(optimizer: Any) -> tuple[dict, list]:
    """What an optimizer keeps, by parameter and name, and the numbers of its groups."""
    kept = {}
    for k, state in optimizer.state.items():
        for name, v in state.items() if isinstance(state, dict) else [("", state)]:
            kept[k, name] = v
    return kept, [x for g in optimizer.param_groups for x in (*g.keys(), *g.values())]


def has_kept(optimizer: object, before: tuple) -> bool:
    """Whether an optimizer has all that it had (new tensors may have come), and its numbers."""
    now, numbers = state_of(optimizer)
    return (
        len(numbers) == len(before[1])
        and all(map(same, numbers, before[1]))
        and all(k in now and same(now[k], v) for k, v in before[0].items())
        and all(isinstance(v, Tensor) for k, v in now.items() if k not in before[0])
    )


def stream_state(stream: Any) -> Any:
    """Where a foreign random generator is."""
    if isinstance(stream, random.SystemRandom):
        return None  # has none; a draw is a call of the operating system, which is noticed
    if hasattr(stream, "getstate"):
        return stream.getstate()
    state = getattr(stream, "bit_generator", stream)
    return repr(getattr(state, "state", None) or stream.get_state())


def unfit(result: Tensor | list | tuple | None, leaves: list, before: Reach) -> str | None:
    """Why the result cannot be built anew by replays."""
    for leaf in leaves:
        if not isinstance(leaf, Tensor) and not is_constant(leaf) and not before.knows(leaf):
            return f"it returns a new {type(leaf).__name__}, which a replay would give again"
    todo = [result]
    while todo:
        x = todo.pop()
        if isinstance(x, dict):
            if type(x).__name__ not in ("dict", "OrderedDict"):
                return f"it returns a {type(x).__name__}; return a dict"
            todo += x.values()
        elif isinstance(x, (list, tuple)):
            if type(x) not in (list, tuple) and not hasattr(x, "_fields") and x in leaves:
                return f"it returns a {type(x).__name__}; return a list or a tuple"
            todo += x
        if isinstance(x, (dict, list)) and before.knows(x):
            return f"it returns a {type(x).__name__} that is kept outside"
    return None
