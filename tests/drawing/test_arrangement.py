"""Boxes stand below their sources and beside each other."""

from __future__ import annotations

import random

import pytest

from disttrain.drawing.arrangement import arranged, layers
from disttrain.drawing.graph import Graph


def drawn(seed):
    rng = random.Random(seed)
    graph = Graph("drawn")
    for i in range(rng.randrange(1, 30)):
        sources = tuple(sorted(rng.sample(range(i), min(i, rng.randrange(3)))))
        kind = "op" if sources else rng.choice(["input", "parameter", "op"])
        graph.add(f"n{i}", kind, sources=sources, shapes=((i, 2),), dtype="float32")
    return graph


@pytest.mark.parametrize("seed", range(25))
def test_drawn_graphs(seed):
    graph = drawn(seed)
    rows = layers(graph)
    assert sorted(i for row in rows for i in row) == list(range(len(graph.nodes)))
    boxes, width, height = arranged(graph)
    for node, box in zip(graph.nodes, boxes, strict=True):
        assert box.x >= 0 and box.x + box.width <= width and box.y + box.height <= height
        for s in node.sources:
            assert boxes[s].y + boxes[s].height < box.y
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            apart = a.x + a.width <= b.x or b.x + b.width <= a.x
            assert apart or a.y + a.height <= b.y or b.y + b.height <= a.y


def test_names_that_are_taken_get_numbers():
    graph = Graph()
    assert [graph.nodes[graph.add("a", "op")].name for _ in range(3)] == ["a", "a_1", "a_2"]
    assert graph.nodes[0].scope == "" and "a: op()" in graph.text()
    assert arranged(Graph())[0] == []
