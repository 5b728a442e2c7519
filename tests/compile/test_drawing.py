"""Graphs as text before and after passes, and in graphviz's language."""

from __future__ import annotations

import re

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile import capture
from disttrain.compile.drawing import dot, effects


def fn(x):
    return (x * 2).relu() + (x * 2).relu() * 1.0


def test_a_capture_shows_itself():
    found = capture(fn)(dt.ones(3))
    assert found.show() == f"captured, 6 instructions:\n{found.graph}"
    text = found.show(passes=True)
    assert "after fold_constants: as before" in text and "after merge_subexpressions, 3 " in text
    assert "fused[mul, relu, add]" in text.rpartition("after fuse")[2]
    with pytest.raises(ValueError, match="format='svg' given; 'text' or 'dot' is needed"):
        found.show("svg")


def test_explain_tells_of_each_pass():
    run = dt.compile(fn)
    run(dt.ones(3))
    assert "mul(%0, 2.0)" not in run.explain()
    text = run.explain(graph=True)
    assert text.startswith(run.explain()) and "captured, 6 instructions" in text
    assert text.index("after simplify") < text.index("after dead_code") < text.index("after fuse")


def test_a_drawing_has_a_node_for_each_value_from_outside_and_each_instruction():
    model, kept = nn.Linear(3, 2), dt.zeros(2)

    def step(x):
        kept.add_(x.sum(0)[:2])
        loss = (model(x) * dt.rand(4, 2)).sum()
        loss.backward()
        return loss

    result, graph = capture(step)(dt.ones(4, 3))
    drawn = dot(graph)
    names = re.findall(r"^  (\w+) \[", drawn, re.M)
    assert len(names) == len(set(names))
    assert len([n for n in names if n.startswith("i")]) == len(graph.instructions)
    assert drawn.count("shape=box") == len(graph.inputs) + len(graph.captured)
    used = {name for edge in re.findall(r"(\w+) -> (\w+);", drawn) for name in edge}
    assert {u for u in used if not u.startswith("result")} <= set(names)
    assert 'weight"' in drawn and ".grad" in drawn and "-> result0" in drawn
    assert {"writes", "random"} <= {e for ins in graph.instructions for e in effects(ins)}
    assert drawn.startswith("digraph") and drawn.count("{") == drawn.count("}")
