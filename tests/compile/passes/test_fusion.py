"""What becomes one kernel, and where a region ends."""

from __future__ import annotations

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes import fuse, optimize
from disttrain.compile.passes.fusion import MOST


def fused(fn, *args):
    graph = capture(fn)(*args)[1]
    return [ins.prim.name for ins in fuse(graph).instructions], fuse(graph), graph


def test_a_chain_is_one_region():
    names, _, _ = fused(lambda x: (x * 2 + 1).relu() - 3, dt.ones(4))
    assert names == ["fused[mul, add, relu, sub]"]


def test_another_operation_ends_it():
    names, _, _ = fused(lambda x: ((x * 2 + 1) @ x - 3).relu(), dt.ones(4, 4))
    assert names == ["fused[mul, add]", "matmul", "fused[sub, relu]"]


def test_what_is_used_later_comes_out_of_it():
    _, lean, graph = fused(lambda x: (lambda a: (a + 1, a.sum()))(x * 2), dt.ones(4))
    x = dt.arange(4.0)
    assert [o.tolist() for o in lean.run(x)] == [o.tolist() for o in graph.run(x)]
    assert len(lean.instructions[0].outputs) == 2


def test_a_write_ends_all_regions():
    def fn(x, kept):
        a = x * 2 + kept
        kept.add_(1.0)
        return (a - kept) * 2

    names, lean, _ = fused(fn, dt.ones(4), dt.ones(4))
    assert [n.startswith("fused") for n in names] == [True, False, True]
    assert lean.run(dt.ones(4), dt.ones(4))[0].tolist() == [2.0] * 4


def test_operations_apart_do_not_share_a_region():
    names, _, _ = fused(lambda x, y: (x * 2 + 1, y * 3 - 1), dt.ones(4), dt.ones(4))
    assert names == ["fused[mul, add]", "fused[mul, sub]"]


def test_regions_have_a_bound():
    def fn(x):
        for _ in range(MOST + 8):
            x = x + 1
        return x

    names, lean, _ = fused(fn, dt.ones(4))
    assert len(names) == 2 and lean.run(dt.ones(4))[0].tolist() == [MOST + 9.0] * 4


def test_single_operations_and_scalars_stay_as_they_are():
    assert fused(lambda x: x * 2, dt.ones(4))[0] == ["mul"]
    assert fused(lambda x: x.sum() * 2 + 1, dt.ones(4))[0] == ["sum", "mul", "add"]


def test_all_passes_together_give_the_same_bits():
    def fn(x):
        a = (x * 2).relu() * 1.0
        return a + (x * 2).relu() + dt.ones(4) * 5, a.neg().neg()

    graph = capture(fn)(dt.ones(4))[1]
    lean = optimize(graph)
    x = dt.tensor([-1.0, -0.0, 0.5, float("nan")])
    assert len(lean.instructions) < len(graph.instructions)
    for a, b in zip(lean.run(x), graph.run(x), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()
