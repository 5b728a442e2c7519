"""Symbolic runs: a capture followed without numbers, and what it cannot be for other sizes."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn

F = nn.functional


def captures(fn, *calls, dynamic=None):
    """How often a function is captured over calls that give what they give eagerly."""
    run = dt.compile(fn, dynamic=dynamic)
    for args in calls:
        expected = fn(*[a.clone() for a in args])
        found = run(*args)
        assert found.array.tobytes() == expected.array.tobytes()
        assert found.array.strides == expected.array.strides
    return len(run.reasons), run.explain()


def inputs(*sizes):
    return [(dt.randn(*size),) for size in sizes]


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


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: sum(x[i] for i in range(x.shape[0])), "s0 =="),
        (lambda x: x * {4: 1.0, 5: 2.0}.get(x.shape[0], 3.0), "s0 =="),
        (lambda x: x * float(len(str(x.shape[0]))), "s0 =="),
    ],
)
def test_a_size_that_python_needs_as_a_number_is_captured_for_each(fn, why):
    count, told = captures(fn, *inputs((4, 3), (5, 3), (14, 3), (5, 3), (9, 3)))
    assert count == 4
    assert why in told


def test_a_decision_by_a_size_is_guarded():
    fn = lambda x: x * 2 if x.shape[0] > 4 else x - 1
    count, told = captures(fn, *inputs((6, 3), (7, 3), (9, 3), (3, 3), (2, 3), (12, 3)))
    assert count == 3
    assert "s0 > 4" in told
    assert "s0 <= 4" in told


def test_a_shape_that_happens_to_be_another_one_is_guarded():
    table = dt.randn(8, 1)

    def f(x):
        return x * 2 if tuple(x.shape) == tuple(table.shape) else x + table.sum()

    count, _ = captures(f, *inputs((4, 1), (5, 1), (8, 1), (9, 1), (8, 1)))
    assert count == 3


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


def test_memory_that_lies_otherwise_is_another_capture():
    run = dt.compile(lambda x: x.transpose(0, 1).contiguous().view(-1) * 2, dynamic=True)
    for n in (3, 5, 1, 4):
        wide = dt.randn(n, 8)
        for x in (wide, wide[:, ::2], wide.T):
            expected = x.transpose(0, 1).contiguous().view(-1) * 2
            assert dt.equal(run(x), expected)


def test_a_program_that_catches_everything_is_followed_all_the_same():
    def f(x):
        try:
            return x * float((x.T * 2).stride()[0])
        except:  # noqa: E722
            return x * 1.0

    count, told = captures(f, *inputs((4, 3), (5, 3), (6, 3)))
    assert count == 3
    assert "strides" in told


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
