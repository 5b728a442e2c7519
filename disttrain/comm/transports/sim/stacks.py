"""Where every simulated rank stands when none can go on: stacks as people read them.

Ranks that stand at the same place are told together. Knows tasks and frames; no ranks that run.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from .scheduler import Task

_PACKAGE = (
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    + os.sep
)
_LAUNCHER = os.path.join(os.path.dirname(_PACKAGE.rstrip(os.sep)), "disttrain_launcher") + os.sep
# In a checkout it is a link.
_OURS = (_PACKAGE, _LAUNCHER, os.path.realpath(_LAUNCHER) + os.sep)
_ABOVE = ("<frozen runpy>", "<frozen importlib._bootstrap>", os.path.join("", "runpy.py"))


def standing(tasks: Sequence[Task]) -> list[str]:
    """A block of lines for each place at which tasks stand, the most crowded one first. Those that
    a rank has beside its program are told where they stand in the program, too."""
    frames = sys._current_frames()
    places: dict[tuple[str, ...], list[Task]] = {}
    for task in tasks:
        ident = None if task.thread is None else task.thread.ident
        frame = None if ident is None else frames.get(ident)
        stack = () if frame is None else _own(traceback.extract_stack(frame))
        if task.name and not stack:
            continue
        places.setdefault(stack, []).append(task)
    blocks = []
    for stack, there in sorted(places.items(), key=lambda item: (-len(item[1]), item[1][0].rank)):
        first = there[0]
        who = ranks_text([task.rank for task in there])
        name = f" ({first.name})" if first.name else ""
        what = first.wait.what() if first.wait is not None else "runs"
        blocks.append("\n".join([f"{who}{name}: {what}", *stack]))
    return blocks


def _own(stack: Sequence[traceback.FrameSummary]) -> tuple[str, ...]:
    """The frames of the program: without what started it, and without this package's inside."""
    frames = list(stack)
    own = [i for i, frame in enumerate(frames) if not _is_ours(frame.filename)]
    if not own:
        return ()
    return tuple(
        f"    {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in frames[own[0] : own[-1] + 1]
    )


def _is_ours(filename: str) -> bool:
    started = filename.endswith(_ABOVE) or os.path.basename(filename) in ("threading.py",)
    return filename.startswith(_OURS) or started


def ranks_text(ranks: Sequence[int]) -> str:
    """``rank 3`` or ``ranks 0-5, 7``."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank{'s' if len(ranks) > 1 else ''} {text}"
