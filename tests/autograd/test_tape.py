"""Tapes: what they record, and the gradients of it."""

from __future__ import annotations

import threading

import pytest

import disttrain as dt
from disttrain.context import thread


def test_what_is_watched_is_differentiated_and_stays_as_it_was():
    x = dt.tensor(3.0)
    with dt.GradientTape() as tape:
        tape.watch(x)
        y = x**3
    assert tape.gradient(y, x).item() == 27.0
    assert not x.requires_grad
    with pytest.raises(dt.errors.AutogradError, match="non-persistent"):
        tape.gradient(y, x)


def test_tapes_nest():
    x = dt.tensor([1.0, 2.0])
    with dt.GradientTape() as outer:
        outer.watch(x)
        with dt.GradientTape() as inner:
            inner.watch(x)
            y = (x**3).sum()
        first = inner.gradient(y, x)
    assert first.tolist() == [3.0, 12.0]
    assert outer.gradient(first, x).tolist() == [6.0, 12.0]
    assert not x.requires_grad


def test_what_others_watch_is_a_constant():
    x, w = dt.tensor(2.0), dt.tensor(5.0)
    with dt.GradientTape() as outer:
        outer.watch(x)
        with dt.GradientTape() as inner:
            inner.watch(w)
            y = x * w
    assert inner.gradient(y, [x, w]) == [None, dt.tensor(2.0)]
    assert outer.gradient(y, x).item() == 5.0


def test_what_was_made_before_or_while_stopped_is_a_constant():
    p = dt.ones(2, requires_grad=True)
    before = p * 2
    with dt.GradientTape(persistent=True) as tape:
        with tape.stop_recording():
            hidden = p * 10
        y = (before * p + hidden).sum()
    assert tape.gradient(y, p).tolist() == [2.0, 2.0]
    assert tape.gradient(hidden, p) is None
    assert tape.gradient(hidden, p, unconnected_gradients="zero").tolist() == [0.0, 0.0]
    with pytest.raises(dt.errors.AutogradError, match="not recording"), tape.stop_recording():
        pass


def test_leaves_are_watched_only_if_asked_for():
    p = dt.ones(2, requires_grad=True)
    with dt.GradientTape(watch_accessed_variables=False) as tape:
        y = p * 2
    assert tape.gradient(y, p) is None
    with dt.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(p)
        y = p * 2
    assert tape.gradient(y, {"p": p})["p"].tolist() == [2.0, 2.0]
    assert p.requires_grad


@pytest.mark.parametrize("together", [True, False])
def test_jacobians(together):
    x = dt.tensor([[1.0, 2.0], [3.0, 4.0]])
    with dt.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        z = y.sum(1)
    whole = tape.jacobian(z, x, experimental_use_pfor=together)
    assert whole.tolist() == [[[2.0, 4.0], [0.0, 0.0]], [[0.0, 0.0], [6.0, 8.0]]]
    rows = tape.batch_jacobian(y, x, experimental_use_pfor=together)
    assert rows.tolist() == [[[2.0, 0.0], [0.0, 4.0]], [[6.0, 0.0], [0.0, 8.0]]]
    assert tape.jacobian(z, dt.ones(2)) is None
    with pytest.raises(dt.errors.ShapeError, match="rank at least 2"):
        tape.batch_jacobian(z, x)


def test_jacobians_of_gradients():
    x = dt.tensor([1.0, 2.0])
    with dt.GradientTape() as outer:
        outer.watch(x)
        with dt.GradientTape() as inner:
            inner.watch(x)
            y = (x**3).sum()
        slope = inner.gradient(y, x)
    assert outer.jacobian(slope, x).tolist() == [[6.0, 0.0], [0.0, 12.0]]


def test_a_tape_begins_anew():
    x = dt.tensor(2.0)
    with dt.GradientTape() as tape:
        tape.watch(x)
        lost = x * 3
        tape.reset()
        tape.watch(x)
        kept = x * 5
    assert tape.gradient([lost, kept], x).item() == 5.0
    with tape:
        with pytest.raises(dt.errors.AutogradError, match="still recording"), tape:
            pass


def test_wrong_arguments():
    tape = dt.GradientTape()
    with pytest.raises(TypeError, match="takes tensors"):
        tape.watch("x")
    with pytest.warns(UserWarning, match="must be floating"):
        tape.watch(dt.tensor([1]))
    with pytest.raises(ValueError, match="unconnected_gradients"):
        tape.gradient(dt.ones(1), dt.ones(1), unconnected_gradients="sum")


def test_weights_of_outputs():
    x = dt.tensor([1.0, 2.0])
    with dt.GradientTape() as tape:
        tape.watch(x)
        y, z = x * 2, x * 3
    found = tape.gradient((y, z), x, output_gradients=(dt.tensor([1.0, 0.0]), None))
    assert found.tolist() == [5.0, 3.0]


@pytest.mark.parametrize("watched", [False, True])
def test_gradients_of_tapes_inside_of_transforms(watched):
    x = dt.arange(6.0).reshape(3, 2)

    def slope(v):
        v = v if watched else v * 1.0
        with dt.GradientTape() as tape:
            tape.watch(v)
            y = (v**3).sum()
        return tape.gradient(y, v)

    def total(v):
        return slope(v).sum()

    assert dt.func.grad(total)(x).tolist() == (6 * x).tolist()
    assert dt.func.jacrev(total)(x).tolist() == (6 * x).tolist()
    assert dt.func.vmap(dt.func.grad(total))(x).tolist() == (6 * x).tolist()
    twice = dt.func.grad(lambda v: dt.func.grad(total)(v).sum())
    assert twice(x).tolist() == [[6.0, 6.0]] * 3
    assert dt.func.vjp(slope, x)[1](dt.ones(3, 2))[0].tolist() == (6 * x).tolist()

    def rows(v):
        with dt.GradientTape() as tape:
            tape.watch(v)
            y = v**3
        return dt.diagonal(tape.jacobian(y, v)).sum()

    assert dt.func.grad(rows)(x[0]).tolist() == (6 * x[0]).tolist()


def test_a_tape_that_another_thread_closes():
    p = dt.ones(2, requires_grad=True)
    tape = dt.GradientTape()
    tape.__enter__()
    y = p * 2
    other = threading.Thread(target=tape.__exit__, args=(None, None, None))
    other.start()
    other.join()
    assert not thread.tapes
    assert tape.gradient(y, p).tolist() == [2.0, 2.0]
