"""Loops and branches in programs, also of sizes that change."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import CaptureError
from disttrain.export import bodies
from support.cases.exported import drawn, reread, same

func = dt.func


def nested(x):
    def turn(i, y):
        return i + 1, func.cond(y.sum() > 3, lambda a: a * 0.5, lambda a: a + i, (y,))

    return func.while_loop(lambda i, y: i < 4, turn, (dt.tensor(0), x))


def folded(x):
    scale = dt.ones(3) * 2
    end, rows = func.scan(lambda c, y: (c + y * scale, c * y), dt.zeros(3), x, reverse=True)
    return end, rows, func.map(lambda y: y.sum(), x)


PROGRAMS = {
    "branch": (lambda x: func.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,)), ["cond"]),
    "nested": (nested, ["while"]),
    "scan": (folded, ["scan", "scan"]),
    "counted": (lambda x: func.fori_loop(0, 4, lambda i, y: y * 2 + i, x), ["scan"]),
    "switch": (lambda x: func.switch(
        x.argmax(), [lambda y: y + 1, lambda y: y * x.sum(), lambda y: -y], x), ["cond"]),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, {"x": {0: "n"}}])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_bits(name, dynamic):
    fn, kinds = PROGRAMS[name]
    program = reread(dt.export(fn, (drawn(0, 4, 3),), dynamic=dynamic))
    found = [n.primitive for n in program.nodes if n.primitive in bodies.NAMES]
    assert found == kinds and all(
        list(n.params.values()) for n in program.nodes if n.primitive in bodies.NAMES
    )
    for i, n in enumerate((4, 4) if dynamic is None else (4, 2, 7)):
        for x in (drawn(i, n, 3), drawn(i, n, 3).abs(), -drawn(i, n, 3).abs()):
            want = fn(x)
            assert same(want, program(x)) and same(want, program.compile()(x))


def test_bodies_that_read_numbers_are_refused():
    with pytest.raises(CaptureError, match=r"test_bodies.py"):
        dt.export(
            lambda x: func.cond(x.sum() > 0, lambda y: y * y.sum().item(), lambda y: y, (x,)),
            (dt.ones(3),),
        )


def test_graphs_inside_are_read():
    program = dt.export(PROGRAMS["branch"][0], (drawn(0, 4, 3),))
    node = next(n for n in program.nodes if n.primitive == "cond")
    inner = node.params["branches"]
    assert [n.primitive for g in inner for n in g.nodes] == ["sub", "mul"] or len(inner) == 2
    assert inner[0].inputs == ("x0",) and str(inner[0]).startswith("graph(x0: float32[4, 3])")
    assert list(program.graph.graphs()) == list(inner)
