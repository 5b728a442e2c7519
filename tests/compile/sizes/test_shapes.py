"""Symbolic runs: a capture followed without numbers, and what it cannot be for other sizes."""

from __future__ import annotations

import gc
import weakref

import pytest

import disttrain as dt
from disttrain import nn
from support.captures import captures, inputs

SIZES = ((4, 6), (5, 6), (3, 9), (7, 11), (2, 8), (6, 6))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * 2 + 1).relu() - x,
        lambda x: x.sum(0) / x.shape[0],
        lambda x: x.reshape(-1)[1:] * 3,
        lambda x: (x.T.contiguous() * 2).view(-1),
        lambda x: dt.cat([x, x[:, :1]], dim=1)[:, 1:],
        lambda x: x + dt.arange(x.shape[1]),
        lambda x: x @ x.T * dt.tril(dt.ones(x.shape[0], x.shape[0])),
        lambda x: dt.softmax(x * x.shape[1] ** -0.5, -1),
        lambda x: x[:, : x.shape[1] // 2].expand(2, -1, -1).mean(0),
        lambda x: dt.zeros_like(x.T) + x.T,
        lambda x: x.masked_fill(x > 0, 1.0 / x.numel()),
    ],
)
def test_one_capture_stands_for_all_sizes(fn):
    count, told = captures(fn, *inputs(*SIZES), dynamic=True)
    assert count <= 2, told


def test_writes_in_place_and_views_of_what_is_written():
    def f(x):
        y = dt.zeros_like(x)
        y[:, 1:] = x[:, :-1]
        y[:, ::2].mul_(0.5)
        return y

    assert captures(f, *inputs(*SIZES), dynamic=True)[0] <= 2


def test_numbers_that_python_reads_are_no_part_of_it():
    count, told = captures(
        lambda x: x * 2 if x.sum().item() > 0 else x, *[(dt.ones(n, 3),) for n in (3, 4, 5)]
    )
    assert count == 3
    assert "numbers of a tensor are read" in told


def test_nothing_is_left_by_the_symbolic_run():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    optimizer = dt.optim.Adam(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def state():
        kept = [*model.parameters(), *model.buffers()]
        kept += [t for s in optimizer.state.values() for t in s.values()]
        return [t.detach().array.tobytes() for t in kept], dt.get_rng_state().tolist()

    for _ in range(2):
        dt.manual_seed(3)
        run = dt.compile(step)
        first = [run(dt.ones(n, 4)) for n in (3, 5, 7)]
        assert all(p.grad is None for p in model.parameters())
        assert not any(isinstance(t.array, type(None)) for t in first)
    before = [t._version for t in model.parameters()]
    run(dt.ones(7, 4))
    assert [t._version for t in model.parameters()] == [v + 1 for v in before]
    assert state() == state()


def test_the_results_of_the_call_that_is_captured_can_go_backward():
    w = dt.randn(4, 4, requires_grad=True)
    run = dt.compile(lambda x: (x @ w).relu().square().mean())
    for n in (3, 5, 7, 9, 5):
        x = dt.randn(n, 4)
        w.grad = None
        run(x).backward()
        found, w.grad = w.grad, None
        (x @ w).relu().square().mean().backward()
        assert found.array.tobytes() == w.grad.array.tobytes()
    assert len(run.reasons) == 2


def test_gradients_of_arguments_and_second_ones_are_replayed():
    run = dt.compile(lambda x: (x * x).tanh().sum(), dynamic=True)
    for n in (3, 5, 7):
        x = dt.randn(n, 4, requires_grad=True)
        (g,) = dt.autograd.grad(run(x), [x], create_graph=True)
        (h,) = dt.autograd.grad(g.sum(), [x])
        (again,) = dt.autograd.grad((x * x).tanh().sum(), [x], create_graph=True)
        (second,) = dt.autograd.grad(again.sum(), [x])
        assert (g.shape, h.shape) == (x.shape, x.shape)
        assert dt.equal(g, again)
        assert dt.allclose(h, second)
    assert len(run.reasons) == 1


def test_views_given_back_and_numbers_made_of_sizes():
    run = dt.compile(lambda x: (x.view(-1), x.shape[0] * 3, x.numel() / 2), dynamic=True)
    for n in (3, 5, 7, 3):
        x = dt.zeros(n, 2)
        flat, count, half = run(x)
        assert (type(count), count, type(half), half) == (int, 3 * n, float, float(n))
        flat += 1
        assert x.sum().item() == 2 * n
    assert len(run.reasons) == 1


def test_second_derivatives_through_copies_of_views():
    def f(x):
        return (x.transpose(0, 1).reshape(-1) ** 3).sum()

    run = dt.compile(f, dynamic=True)
    for n in (3, 5, 7):
        x = dt.randn(n, 4, requires_grad=True)
        (g,) = dt.autograd.grad(run(x), [x], create_graph=True)
        (h,) = dt.autograd.grad(g.sum(), [x])
        assert dt.allclose(h, 6 * x)
    assert len(run.reasons) == 1


def test_nothing_of_a_call_is_kept():
    run = dt.compile(lambda x: (x * 2).reshape(-1) + dt.ones(x.numel()), dynamic=True)
    kept = []
    for n in (3, 4, 5):
        x = dt.ones(n, 4)
        kept += [weakref.ref(x), weakref.ref(run(x))]
        del x
    gc.collect()
    assert len(run.reasons) == 1
    assert [ref() for ref in kept] == [None] * len(kept)
