"""Random step functions, compiled against eager, over ten calls, bit by bit."""

from __future__ import annotations

import pytest

from support.agree import difference
from support.cases import steps

PARTS, EACH, CALLS = 10, 60, 10


def parts(source: str) -> str | None:
    """Where the compiled step of a program and the eager one part, if they do."""
    return difference(steps.maker(source), CALLS)


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_steps_are_eager_steps(part):
    for seed in range(part * EACH, (part + 1) * EACH):
        pieces, end = steps.draw(seed)
        if parts(steps.program(pieces, end)) is not None:
            small = steps.shrunk(pieces, end, lambda s: parts(s) is not None)
            pytest.fail(f"seed {seed}\n{small}\n{parts(small)}")
