"""The words of a graph."""

from __future__ import annotations

import numpy as np

import disttrain as dt
from disttrain.compile import Instruction, Var, capture
from disttrain.compile.instruction import describe
from disttrain.ops.declare import REGISTRY


def test_names_are_written_as_in_graphs():
    assert (str(Var("v", 3)), str(Var("c", 0))) == ("%3", "c0")
    assert describe(((2, 3), np.dtype(np.float32))) == "float32[2, 3]"


def test_renaming_touches_operands_alone():
    a, b, out = Var("v", 0), Var("c", 0), Var("v", 1)
    ins = Instruction(REGISTRY["add"], (a, 2.0), {}, (out,))
    new = ins.renamed({a: b, out: a})
    assert new.args == (b, 2.0) and new.outputs == (out,) and ins.args == (a, 2.0)


def test_effects_are_writes_draws_and_checks():
    x = dt.ones(3)

    def fn(x):
        x.mul_(2.0)
        return dt.rand(3) + x

    found = {ins.prim.name: ins.effect for ins in capture(fn)(x).graph.instructions}
    assert found["add"] is False and sum(found.values()) == 2
