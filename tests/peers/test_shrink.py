"""Comparing two runs and shrinking programs, on two libraries of which one is wrong."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from peers.compare import close, compare
from peers.deliberate import Deliberate
from peers.program import Value, describe, run, snippet
from peers.shrink import on_both, shrink, without

import disttrain

LINES = (
    "v0 = T.tensor([1.0, -2.0], requires_grad=True)",
    "v1 = v0 * 2",
    "v2 = T.tensor([3.0, 4.0])",
    "v3 = T.relu(v1)",
    "v4 = v3 + v2",
    "v5 = v2.sum()",
    "v4.backward(T.ones(2))",
)


def library(**instead):
    """disttrain, with other functions under some names."""
    names = {n: getattr(disttrain, n) for n in dir(disttrain) if not n.startswith("_")}
    return SimpleNamespace(**names | instead)


def difference(**instead):
    return on_both(library(**instead), disttrain)(LINES)[0]


def test_equal_runs_do_not_differ():
    assert difference() is None


def wrong_type(x):
    return disttrain.relu(x).double()


def raising(x):
    raise RuntimeError("no relu today")


@pytest.mark.parametrize(
    "relu, kind, where",
    [
        (disttrain.tanh, "value", "v3"),
        (wrong_type, "dtype", "v3"),
        (lambda x: disttrain.relu(x)[None], "shape", "v3"),
        (lambda x: disttrain.relu(x).detach(), "requires_grad", "v3"),
        (lambda x: disttrain.relu(x.detach()) + x * 0, "grad value", "v0"),
        (raising, "error", LINES[3]),
    ],
)
def test_what_differs_is_found_and_shrunk(relu, kind, where):
    both = on_both(library(relu=relu), disttrain)
    lines = LINES if kind.startswith("grad") else LINES[:-1]
    lines, left = shrink(lines, both(lines)[0], both)
    assert (left.kind, left.where) == (kind, where)
    assert LINES[0] in lines and LINES[3] in lines and LINES[5] not in lines
    assert (LINES[-1] in lines) == kind.startswith("grad")


def test_an_error_that_only_the_peer_raises():
    assert (
        compare(LINES, run(LINES, disttrain), run(LINES, library(relu=raising))).kind == "no error"
    )

    def unwritten(x):
        raise RuntimeError('"relu" not implemented for Half')

    assert compare(LINES, run(LINES, disttrain), run(LINES, library(relu=unwritten))) is None


def test_a_line_goes_with_all_that_needs_it():
    assert without(LINES, 1, 2) == (LINES[0], LINES[2], LINES[5])


def test_lines_that_raise_are_caught_in_the_snippet():
    lines = ("v0 = T.tensor([1.0])", "v1 = v0.view(7)")
    text = snippet(lines, run(lines, disttrain).errors)
    assert "try: v1 = v0.view(7)\nexcept" in text and "fill" not in text
    exec(text.replace("import torch as T", "import disttrain as T"), {})


def test_tolerance_is_relative_to_the_largest_value():
    assert close(np.array([1000.0, 1.001]), np.array([1000.0, 1.0]), 1e-5)
    assert not close(np.array([1000.0, 1.1]), np.array([1000.0, 1.0]), 1e-5)
    assert not close(np.array([np.nan, 1.0]), np.array([1.0, 1.0]), 1e-5)
    assert close(np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), 1e-5)
    assert not close(np.array([1, 2]), np.array([1, 3]), 0.0)


def test_values_are_described_without_their_library():
    x = disttrain.tensor([1.5], dtype=disttrain.bfloat16, requires_grad=True)
    x.sum().backward()
    value = describe([x, {"a": disttrain.float32}, disttrain.nn.ReLU()])
    assert isinstance(value[0], Value) and value[0].dtype == "bfloat16" and value[0].grad.array == 1
    assert value[1:] == [{"a": "float32"}, "ReLU"]


def test_an_entry_covers_what_it_names_alone():
    found = difference(relu=disttrain.tanh)

    def covers(kind, text, theirs):
        return Deliberate(kind, text, r"", theirs, "a test", "").covers(found, LINES)

    assert covers("value", r"relu", r"0\.")
    assert not covers("value", r"gelu", r"0\.")
    assert not covers("dtype", r"relu", r"0\.")
    assert not covers("value", r"relu", r"nan")
