"""Pure graphs as programs: the same bits, fresh values, and nothing that Python does is lost."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.graphs import CURRENT, Function
from disttrain.graphs.cells import GraphCell
from disttrain.graphs.compiled import Once
from disttrain.graphs.operations import Operations

made = Operations()
NAMES = {
    **{w: made.unary(w, w.title(), getattr(dt, w)) for w in ("tanh", "exp")},
    **{w: made.binary(w, w.title(), getattr(dt, w)) for w in ("add", "mul")},
    **made.table({
        "halves": ("Split", lambda x: x.chunk(2), "x!"),
        "shuffle": ("Shuffle", lambda x: x[dt.randperm(len(x))], "x!"),
        "positive": ("Positive", lambda x: x if bool(x.sum() > 0) else -x, "x!"),
    }),
}  # fmt: skip
X = dt.linspace(-1.0, 1.0, 8)


def runs(fn, *inputs, times=4):
    """Whether the last of several runs, without gradients, is that of a program; its results."""
    traced = Function(fn)
    with dt.no_grad():
        for values in zip(*[[v] * times if isinstance(v, dt.Tensor) else v for v in inputs],
                          strict=True):  # fmt: skip
            found = traced(*values)
    programs = traced.traces[0].compiled._programs
    return any(p is not None for p in programs.values()), found


def wave(x, y):
    a, b = NAMES["halves"](NAMES["mul"](NAMES["tanh"](x), y))
    return {"sum": NAMES["add"](a, b), "same": x, "seven": NAMES["add"](dt.tensor(3.0), 4.0)}


def test_the_same_bits():
    staged, found = runs(wave, X, X + 2)
    with dt.no_grad():
        wanted = wave(X, X + 2)
    assert staged
    assert {k: v.tolist() for k, v in found.items()} == {k: v.tolist() for k, v in wanted.items()}
    found["same"].add_(1)
    assert X[0].item() == -1.0


def test_other_shapes_have_programs_of_their_own():
    traced = Function(wave, relaxed=True)
    with dt.no_grad():
        for n in (2, 4, 6) * 3:
            assert traced(dt.ones(n), dt.ones(n))["sum"].shape == (n // 2,)
    assert len(traced.traces[-1].compiled._programs) >= 2


def test_cells_are_read_at_every_run():
    cell = GraphCell(dt.tensor(2.0))
    traced = Function(lambda x: NAMES["exp"](NAMES["mul"](x, cell.now())))
    with dt.no_grad():
        for value in (0.0, 0.0, 0.0, 1.0):
            cell.move("assign", dt.tensor(value))
            assert traced(dt.tensor(1.0)).tolist() == dt.exp(dt.tensor(value)).tolist()
    assert any(traced.traces[0].compiled._programs.values())


@pytest.mark.parametrize("word", ["shuffle", "positive"])
def test_what_cannot_be_staged_runs_as_it_is(word):
    staged, found = runs(lambda x: NAMES["add"](NAMES[word](x), 1.0), X)
    assert not staged
    assert sorted(found.tolist()) == sorted((X + 1).tolist())


def test_what_python_does_is_done_at_every_run():
    done = []

    def fn(x):
        y = CURRENT.get().record("Call", lambda v: done.append(1) or v * 2, [x])
        return NAMES["add"](NAMES["tanh"](y), 1.0)

    assert not runs(fn, X)[0]
    assert len(done) == 5  # (once more while it was traced)


def test_gradients_are_as_without():
    traced = Function(wave)
    with dt.no_grad():
        for _ in range(3):
            traced(X, X)
    x = X.clone().requires_grad_()
    traced(x, X)["sum"].sum().backward()
    other = X.clone().requires_grad_()
    wave(other, X)["sum"].sum().backward()
    assert x.grad.tolist() == other.grad.tolist()
    staged, found = runs(wave, x, X)
    assert staged and not found["sum"].requires_grad


def counted(fn):
    """``fn``, once for each kind of values, and how often its Python has run."""
    calls = []
    return Once(lambda *v: calls.append(1) or fn(*v)), calls


def test_python_runs_once():
    w = dt.tensor([1.0, 2.0], requires_grad=True)
    once, calls = counted(lambda x: {"out": [dt.tanh(x * w)]})
    for factor in (1.0, 2.0, 3.0):
        with dt.no_grad():
            w.copy_(dt.tensor([factor, factor]))
        assert once(dt.ones(2))["out"][0].tolist() == dt.tanh(dt.ones(2) * w).tolist()
    assert len(calls) == 1
    x = dt.ones(2, requires_grad=True)
    once(x)["out"][0].sum().backward()
    found, w.grad = w.grad, None
    dt.tanh(x * w).sum().backward()
    assert found.tolist() == w.grad.tolist()
    once(dt.ones(1, 2))
    assert len(calls) == 2


CELL = GraphCell(dt.tensor(1.0))
OUTSIDE = dt.ones(2)


@pytest.mark.parametrize("fn", [
    lambda x: dt.nn.functional.dropout(x), lambda x: x * float(x.sum()), lambda x: x * CELL.now(),
    lambda x: x + OUTSIDE * 2, lambda x: x + OUTSIDE.add_(1), lambda x: x * float(OUTSIDE.sum()),
    lambda x: x + float(OUTSIDE[0]), lambda x: OUTSIDE.copy_(x) + 1,
])  # fmt: skip
def test_what_would_be_frozen_runs_every_time(fn):
    once, calls = counted(fn)
    for _ in range(3):
        once(dt.ones(2))
    assert len(calls) == 4  # (the first of which was given up)
    with pytest.raises(ZeroDivisionError):
        Once(lambda x: 1 / 0)(OUTSIDE)


def test_constants_from_outside():
    calls = []
    once = Once(lambda x: calls.append(1) or x + dt.ones(2) * 2 + float(OUTSIDE.numel()),
                lambda t: t is OUTSIDE)  # fmt: skip
    assert [once(dt.ones(2)).tolist() for _ in range(3)] == [[5.0, 5.0]] * 3
    assert len(calls) == 1
