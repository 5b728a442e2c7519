"""What replays call for instructions gives what their own forward does."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.replays.lowering import lowered

F = dt.nn.functional


def instructions(fn, *args):
    graph = capture(fn)(*args).graph
    return graph, {ins.prim.name: ins for ins in graph.instructions}


def compared(graph, ins, arrays):
    """Both forms on the same arrays."""
    run = lowered(ins, graph.metas)
    own = ins.prim.compute(arrays, ins.params)
    found = run(*arrays)
    own, found = (r if isinstance(r, tuple) else (r,) for r in (own, found))
    for a, b in zip(own, found, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        assert a.strides == b.strides
    return found


@pytest.mark.parametrize("rows", [1, 2, 40, 100])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_products(rows, kind, bias):
    gen = np.random.default_rng(0)
    x, w, b = (gen.normal(size=s).astype(kind) for s in ((rows, 130), (120, 130), (120,)))
    given = [dt.from_numpy(a) for a in ((x, w, b) if bias else (x, w))]
    graph, found = instructions(lambda *a: F.linear(*a), *given)
    for first in (x, np.asfortranarray(x)):
        for second in (w, np.asfortranarray(w)):
            compared(graph, found["linear"], [first, second, b if bias else None])


@pytest.mark.parametrize("needs", [(1, 1, 1), (0, 1, 1), (1, 0, 0), (0, 1, 0), (1, 1, 0)])
def test_gradients_of_products(needs):
    gen = np.random.default_rng(0)
    arrays = [gen.normal(size=s).astype(np.float32) for s in ((33, 6), (4, 6), (4,))]
    given = [dt.from_numpy(a).requires_grad_(bool(n)) for a, n in zip(arrays, needs, strict=True)]

    def fn(*a):
        wanted = [t for t in a if t.requires_grad]
        return dt.autograd.grad((F.linear(*a) * 2).sum(), wanted)

    graph, found = instructions(fn, *given)
    ins = found["linear_backward"]
    g = gen.normal(size=(33, 4)).astype(np.float32)
    saved = [a if isinstance(v, dt.compile.Var) else None
             for v, a in zip(ins.args[1:], arrays, strict=True)]  # fmt: skip
    assert len(compared(graph, ins, [g, *saved])) == sum(needs)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_losses(reduction, smoothing, kind):
    gen = np.random.default_rng(0)
    logits, target = gen.normal(size=(7, 5)).astype(kind), gen.integers(0, 5, 7)
    target[2] = -100

    def fn(y, t):
        loss = F.cross_entropy(y, t, reduction=reduction, label_smoothing=smoothing)
        return loss, dt.autograd.grad((loss * 3).sum(), y)

    graph, found = instructions(fn, dt.from_numpy(logits).requires_grad_(), dt.from_numpy(target))
    _, lse, count = compared(graph, found["cross_entropy"], [logits, target, None])
    ins = found["cross_entropy_backward"]
    if reduction == "none":
        assert lowered(ins, graph.metas) is None
        return
    blank = np.zeros((), kind)
    for g in (1.0, -2.5, np.inf):
        arrays = [np.asarray(g, kind), blank, blank, logits, target, None, None, lse, count]
        compared(graph, ins, arrays)


def test_targets_out_of_range_raise():
    logits, target = dt.randn(3, 4), dt.tensor([0, 1, 2])
    graph, found = instructions(lambda y, t: F.cross_entropy(y, t), logits, target)
    run = lowered(found["cross_entropy"], graph.metas)
    with pytest.raises(dt.errors.DimError, match="target 9 is out of range"):
        run(logits.numpy(), np.array([0, 9, 1]), None)


def test_what_is_rounded_or_weighted_has_its_own_forward():
    half = [dt.randn(3, 4).to(dt.bfloat16), dt.randn(2, 4).to(dt.bfloat16)]
    graph, found = instructions(lambda x, w: F.linear(x, w), *half)
    assert lowered(found["linear"], graph.metas) is None
    graph, found = instructions(
        lambda y, t, w: F.cross_entropy(y, t, w), dt.randn(3, 4), dt.tensor([0, 1, 2]), dt.ones(4)
    )
    assert lowered(found["cross_entropy"], graph.metas) is None
    graph, found = instructions(lambda x: x.relu(), dt.ones(3))
    assert lowered(found["relu"], graph.metas) is None
