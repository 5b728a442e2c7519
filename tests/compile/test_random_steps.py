"""Random step functions, compiled against eager, over ten calls, bit by bit."""

from __future__ import annotations

import warnings

import pytest

from support.agree import run
from support.cases import steps

PARTS, EACH, CALLS = 10, 60, 10


def difference(source: str) -> str | None:
    """Where the compiled step and the eager one part, if they do."""
    make = steps.maker(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = run(make, False, CALLS)
        try:
            found, step = run(make, True, CALLS)
        except Exception as error:
            return f"compiled raises {type(error).__name__}: {error}"
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a != b:
            return f"call {i}: eager {a}\ncompiled {b}\n{step.explain()}"
    return None


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_steps_are_eager_steps(part):
    for seed in range(part * EACH, (part + 1) * EACH):
        pieces, end = steps.draw(seed)
        if difference(steps.program(pieces, end)) is not None:
            small = steps.shrunk(pieces, end, lambda s: difference(s) is not None)
            pytest.fail(f"seed {seed}\n{small}\n{difference(small)}")
