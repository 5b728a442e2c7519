"""Functions over tensors and their other names, compiled against eager, bit by bit, while the pool
is changed from outside between calls."""

from __future__ import annotations

import warnings

import pytest

from support.agree import run
from support.cases import alias_programs, steps

PARTS, EACH, CALLS = 20, 100, 5


def difference(source: str) -> str | None:
    """Where the compiled function and the eager one part, if they do."""
    make = steps.maker(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = run(make, False, CALLS)
        found, step = run(make, True, CALLS)
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a != b:
            return f"call {i} differs:\n{a}\n{b}\n{step.explain()}"
    return None


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_equals_eager(part):
    for i in range(EACH):
        source = alias_programs.text(part * EACH + i)
        found = difference(source)
        assert found is None, f"{source}\n{found}"
