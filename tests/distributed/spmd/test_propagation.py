"""How results of staged programs lie, from how their arguments do."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import func as F
from disttrain.context import Rank, attach
from disttrain.distributed.spmd import Mesh, OverMesh, Spec, lay, layout_of, simulate
from disttrain.distributed.spmd.arrays import with_layouts
from disttrain.distributed.spmd.propagation import constrained, propagated, says
from disttrain.func.staging import stage


@pytest.fixture(autouse=True)
def eight():
    with attach(Rank()):
        simulate(8)
        yield


def mesh():
    return Mesh.of((2, 4), ("x", "y"), None)


def found(fn, *layouts, shape=(4, 8)):
    body = stage(lambda *xs: [fn(*xs)], [(shape, "float32")] * len(layouts)).body
    (end,) = propagated(body, layouts)
    return end


def test_they_follow():
    both = OverMesh(mesh(), Spec("x", "y"))
    assert found(lambda x: x.sin() * 2, both) is both
    assert found(lambda x: x.sum(0), both) == (mesh(), ("y",))
    assert found(lambda x: x.sum(), both) == (mesh(), ())
    assert found(lambda x: x @ x.mT, both) == (mesh(), ("x", None))
    assert found(lambda x: x.mT, both) == (mesh(), ("y", "x"))
    assert found(lambda x, y: x + y, None, both) is both
    assert found(lambda x: x + 1, None) is None


def test_what_is_said_inside_holds():
    rows = OverMesh(mesh(), Spec("x"))
    other = OverMesh(Mesh.of((8,), ("z",), None), Spec(None, "z"))
    assert found(lambda x: lay(x + 1, rows) * 2, None) == (mesh(), ("x", None))
    assert found(lambda x: lay(x + 1, other), rows) is other
    body = stage(lambda x: [lay(x, rows)], [((4, 8), "float32")]).body
    assert says(body) and not says(stage(lambda x: [x + 1], [((4, 8), "float32")]).body)
    (out,) = with_layouts(body, [dt.ones(4, 8)], [dt.ones(4, 8)])
    assert layout_of(out) is rows


def test_a_constraint_is_the_value():
    rows = OverMesh(mesh(), Spec("x"))
    f = lambda x: (constrained(x, layout=rows) ** 2).sum()
    assert F.grad(f)(dt.ones(4)).tolist() == [2.0] * 4
    assert F.vmap(F.grad(f))(dt.ones(2, 4)).tolist() == [[2.0] * 4] * 2
    assert F.jvp(f, (dt.ones(4),), (dt.ones(4),))[1].item() == 8.0
