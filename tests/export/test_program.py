"""Calls of programs: what is checked of inputs, by name, and what is told."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import ConfigError, DTypeError, ShapeError
from support.cases.exported import CASES, drawn, made, reread, same


def pair(x, y):
    return x @ y


PROGRAM = dt.export(pair, (dt.ones(3, 4), dt.ones(4, 5)), dynamic={
    "x": {0: dt.Dim("n", max=6), 1: "k"}, "y": {0: "k"}})  # fmt: skip
X, Y = dt.ones(2, 4), dt.ones(4, 5)


@pytest.mark.parametrize("program", [PROGRAM, reread(PROGRAM)], ids=["made", "read"])
@pytest.mark.parametrize(("args", "kind", "told"), [
    ((dt.ones(7, 4), Y), ShapeError, "dimension 0 of x is 7; 'n' is 1 to 6"),
    ((dt.ones(0, 4), Y), ShapeError, "dimension 0 of x is 0; 'n' is 1 to 6"),
    ((X, dt.ones(3, 5)), ShapeError, "dimension 0 of y is 3; dimension 1 of x is 4; both are 'k'"),
    ((X, dt.ones(4, 6)), ShapeError, r"y: dimension 1 is 6; 5 is needed \(shape \[4, 6\]"),
    ((X, dt.ones(4)), ShapeError, r"y: shape \[4\] given; \[k, 5\] is needed"),
    ((X, Y.double()), DTypeError, "y: float64 given; float32 is needed"),
    ((X, 3), DTypeError, "y: int given; a tensor is needed"),
    ((X,), ConfigError, "argument 'y' is missing"),
    ((X, Y, X), ConfigError, "3 arguments by position given; 2 are taken"),
    (({"a": X}, Y), DTypeError, "x: dict given"),
])  # fmt: skip
def test_wrong_inputs(program, args, kind, told):
    with pytest.raises(kind, match=told):
        program(*args)
    assert program(X, y=Y).tolist() == (X @ Y).tolist()


def test_wrong_names():
    with pytest.raises(ConfigError, match="'z' is not known; the arguments are x, y"):
        PROGRAM(X, Y, z=3)
    with pytest.raises(ConfigError, match="'x' is given twice"):
        PROGRAM(X, Y, x=X)
    for inputs in ({"x": X.array}, {"x": X.array, "y": Y.array, "z": Y.array}):
        with pytest.raises(ConfigError, match=r"inputs .* given; needed are \['x', 'y'\]"):
            PROGRAM.run(inputs)
    with pytest.raises(DTypeError, match="y: list given; an array is needed"):
        PROGRAM.run({"x": X.array, "y": [1]})
    with pytest.raises(DTypeError, match="y: int64 given"):
        PROGRAM.run({"x": X.array, "y": np.ones((4, 5), np.int64)})
    with pytest.raises(ShapeError, match="'n' is 1 to 6"):
        PROGRAM.run({"x": np.ones((7, 4), np.float32), "y": Y.array})


def test_arrays_are_tensors_too():
    assert same(PROGRAM(X.array, Y.array), X @ Y)
    assert PROGRAM.run({"x": X, "y": Y})["output"].tolist() == (X @ Y).tolist()


def test_results_are_memory_of_their_own():
    weight = dt.ones(3)
    program = reread(dt.export(lambda x: (x, x.view(-1), weight, weight[1:]), (dt.ones(2, 2),)))
    x = np.ones((2, 2), np.float32)
    for found in program.run({"x": x}).values():
        found[...] = 7
    assert x.sum() == 4 and [v.sum() for v in program.run({"x": x}).values()] == [4, 4, 3, 2]


def test_relations_of_sizes():
    even = dt.export(lambda x: x.reshape(-1, 2), (dt.ones(6),), dynamic={"x": {0: "n"}})
    assert even(dt.ones(8)).shape == (4, 2)
    for program in (even, reread(even)):
        with pytest.raises(ShapeError, match=r"2\*\(n // 2\) == n is needed at .*test_program.py"):
            program(dt.ones(7))


def test_copies():
    program = made("mixed")
    _, args, _ = CASES["mixed"]
    want = program(*args(2, 2))
    for other in (copy.deepcopy(program), pickle.loads(pickle.dumps(program))):
        assert same(want, other(*args(2, 2)))
        assert other.state["fc.weight"] is not program.state["fc.weight"]


def test_texts():
    text = str(PROGRAM)
    given, gives = "(x: float32[n, k], y: float32[k, 5])", "(output: float32[n, 5])"
    assert text.startswith(f"program {given} -> {gives}")
    assert "n: 1 to 6" in text and "%matmul = matmul(%x, %y)" in text
    assert repr(PROGRAM) == text


def test_steps_are_told_where_they_fail():
    program = dt.export(lambda x, i: x.index_select(0, i), (drawn(0, 3, 2), dt.tensor([0, 2])))
    with pytest.raises(IndexError, match=r"program: .*test_program.py"):
        program(drawn(0, 3, 2), dt.tensor([0, 3]))
    with pytest.raises(IndexError, match=r"program: .*test_program.py"):
        program.run({"x": drawn(0, 3, 2).array, "i": np.array([0, 3])})


class Placed(nn.Module):
    """Adds numbers that are made of sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(3, 4), nn.LayerNorm(4)

    def forward(self, x):
        places = dt.arange(x.shape[0], device=x.device)[:, None]
        return self.norm(self.fc(x).relu()) + places


def test_on_a_device(double, tmp_path):
    """On the device double: the host's numbers, also of what is made of sizes on the way."""
    program = dt.export(Placed(), (drawn(0, 2, 3),), dynamic=[{0: "b"}])
    program.save(tmp_path / "m.dtp")
    there = dt.load_program(tmp_path / "m.dtp", device="cuda")
    assert there.device.type == "cuda" and all(p.requires_grad for p in there.state.values())
    for b in (1, 3):
        x = drawn(1, b, 3)
        want = program.run({"x": x.array})["output"]
        found = there(x.to("cuda"))
        assert found.device.type == "cuda"
        np.testing.assert_allclose(found.detach().cpu().array, want, atol=1e-6)
        np.testing.assert_allclose(there.run({"x": x.array})["output"], want, atol=1e-6)
    assert there.to("cpu").run({"x": x.array})["output"].tobytes() == want.tobytes()


def test_a_program_is_a_function():
    """It can be exported again, and tells its arguments."""
    again = dt.export(PROGRAM, (X, Y), dynamic={"x": {0: "n", 1: "k"}, "y": {0: "k"}})
    assert str(again.inputs[0]) == "x: float32[n, k]" and same(again(X, Y), PROGRAM(X, Y))
    nested = dt.export(lambda x: PROGRAM(x, Y) + 1, (X,))
    assert same(nested(X), PROGRAM(X, Y) + 1)
    alone = dt.export(lambda x: x + 1, (dt.tensor(1.0),))
    assert alone.run({"x": np.float32(2)})["output"] == 3
