"""``torch.jit``: the same numbers, computed in the ordinary way."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compat.publish import MissingName
from disttrain.compat.torch import scripted


def test_scripts_run_as_they_are_written() -> None:
    jit = scripted.jit()

    @jit.script
    def double(x):
        return x + x

    @jit.ignore(drop=True)
    def ignored(x):
        return x

    layer = dt.nn.Linear(2, 1)
    assert jit.script(layer) is layer and jit.trace(layer, dt.ones(2)) is layer
    assert double(dt.ones(2)).tolist() == [2.0, 2.0] and ignored(3) == 3
    assert jit.annotate(int, 4) == 4 and jit.isinstance(4, int) and not jit.is_scripting()
    assert jit.wait(jit.fork(double, dt.ones(1))).tolist() == [2.0]
    with pytest.raises(ZeroDivisionError):
        jit.wait(jit.fork(lambda: 1 // 0))
    assert not isinstance(double, jit.ScriptFunction)
    with pytest.raises(MissingName, match=r"torch\.jit\.load is not part of"):
        _ = jit.load
