"""Functions of trees of tensors as programs."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func.trees.listing import Style
from disttrain.func.trees.programs import Executable, Programs
from tests.support.borders import BORDER


class Native(Programs):
    border = BORDER


def test_python_runs_once_for_each_kind_of_call():
    seen = []

    def f(tree, n):
        seen.append(n)
        return {"y": tree["x"] * n}

    run = Native(f, static_argnums=1)
    for _ in range(3):
        assert run({"x": dt.ones(2)}, 3)["y"].tolist() == [3, 3]
    assert run({"x": dt.ones(3)}, 3)["y"].tolist() == [3, 3, 3] and seen == [3, 3]
    assert run({"x": dt.ones(2)}, 4)["y"].tolist() == [4, 4] and seen == [3, 3, 4]
    with pytest.raises(TypeError, match=r"passed to the function at path tree\['x'\]"):
        run({"x": "text"}, 3)


def test_programs_are_told_and_called():
    run = Native(lambda x: x * x + 1.0)
    call = run.kind((dt.ones(2),), {})
    program = run.staged(call)
    assert "b:f32[2] = times a a" in str(program.listing(Style({"mul": "times"}))[0])
    executable = Executable(run, call, program)
    assert executable(dt.ones(2)).tolist() == [2, 2]
    with pytest.raises(TypeError, match=r"compiled with float32\[2\] and called with float32\[3\]"):
        executable(dt.ones(3))
