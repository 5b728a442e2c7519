"""Functions that look at what they compute: each way that a call takes is a capture of its own."""

from __future__ import annotations

import warnings

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile import capture
from disttrain.errors import CaptureError
from support.agree import check, difference
from support.cases import steps

PARTS, EACH, CALLS = 8, 40, 10


def parts(source: str) -> str | None:
    """Where the compiled step of a program and the eager one part, if they do."""
    return difference(steps.maker(source), CALLS)


@pytest.mark.parametrize("part", range(PARTS))
def test_steps_with_branches_are_eager_steps(part):
    for seed in range(part * EACH, (part + 1) * EACH):
        pieces, end = steps.draw(seed, steps.PATHS)
        if parts(steps.program(pieces, end)) is not None:
            small = steps.shrunk(pieces, end, lambda s: parts(s) is not None)
            pytest.fail(f"seed {seed}\n{small}\n{parts(small)}")
