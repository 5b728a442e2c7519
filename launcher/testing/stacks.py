"""Stacks of a process that was ended, as ``faulthandler`` writes them, made readable: pure."""

from __future__ import annotations

import linecache
import os
import re
from dataclasses import dataclass

_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]+)[^(]*\(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d+)(?: in (.*))?')
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PACKAGE = os.path.join(os.path.dirname(_HERE), "disttrain") + os.sep
_AROUND = re.compile(rf"/(_pytest|pluggy)/|^{re.escape(_HERE)}/|/threading\.py$")


@dataclass(frozen=True)
class Frame:
    path: str
    line: int
    function: str

    @property
    def source(self) -> str:
        return linecache.getline(self.path, self.line).strip()


def threads_of(text: str) -> list[list[Frame]]:
    """The frames of each thread, the outermost first; the thread that ran last comes first. What
    started the test is left out, and so are threads that were never in the program."""
    threads: list[list[Frame]] = []
    current = 0
    for line in text.splitlines():
        if _THREAD.match(line):
            current = len(threads) if line.startswith("Current") else current
            threads.append([])
        elif (found := _FRAME.match(line)) and threads:
            threads[-1].append(Frame(found[1], int(found[2]), found[3] or "?"))
    if threads:
        threads.insert(0, threads.pop(current))
    return [stack for stack in map(_own, threads) if stack]


def _own(frames: list[Frame]) -> list[Frame]:
    """The outermost first, from the first one that is the program's to its call of this package."""
    stack = frames[::-1]
    around = [i for i, frame in enumerate(stack) if _AROUND.search(frame.path)]
    stack = stack[around[-1] + 1 :] if around else stack
    own = [i for i, frame in enumerate(stack) if not frame.path.startswith(_PACKAGE)]
    return stack[: own[-1] + 1] if own else []
