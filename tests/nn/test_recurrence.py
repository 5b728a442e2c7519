"""A pass over a sequence as one operation is the pass spelled out, in every way it is used."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn import recurrence
from disttrain.nn.recurrence import STEPS, Step, along

T, N, H = 5, 3, 4


def drawn(mode, seed=0, dtype=dt.float64):
    dt.manual_seed(seed)
    _, gates, count = STEPS[mode]

    def leaf(*shape):
        return dt.randn(*shape, dtype=dtype, requires_grad=True)

    x, w, b = leaf(T, N, gates * H), leaf(gates * H, H), leaf(gates * H)
    return x, tuple(leaf(N, H) for _ in range(count)), w, b


def both(mode, backwards, fn):
    """What ``fn(leaves, outputs)`` gives of the operation, and of the steps."""
    found = []
    for one in (True, False):
        x, state, w, b = drawn(mode)
        step = Step(mode, w, b)
        assert step.is_one_operation(x, state)
        run = along if one else recurrence._spelled_out
        out, last = run(x, state, step, backwards)
        found.append(fn((x, *state, w, b), (out, *last)))
    return found


def close(a, b, far=1e-10):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=far, atol=far)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("mode", STEPS)
def test_outputs_gradients_and_second_derivatives(mode, backwards):
    def values(leaves, outs):
        weights = [dt.linspace(-1, 1, o.numel(), dtype=dt.float64).view(o.shape) for o in outs]
        loss = sum((o * o * c).sum() for o, c in zip(outs, weights, strict=True))
        first = dt.autograd.grad(loss, leaves, create_graph=True)
        second = dt.autograd.grad(sum((g * g).sum() for g in first), leaves)
        return (*outs, *first, *second)

    close(*both(mode, backwards, values))


@pytest.mark.parametrize("mode", STEPS)
def test_the_state_may_be_made_of_the_same_weights(mode):
    """Two passes in a row, and one tensor for both parts of an LSTM's state: derivatives that can
    be differentiated are those that cannot."""
    found = []
    for again in (False, True):
        x, state, w, b = drawn(mode)
        step, state = Step(mode, w, b), (state[0],) * len(state)
        first, last = along(x, state, step, False)
        second, _ = along(x[:2], tuple(s[0] for s in last), step, False)
        loss = first.sin().sum() + second.sin().sum()
        found.append(dt.autograd.grad(loss, (x, w, b, state[0]), create_graph=again))
    close(*found)


@pytest.mark.parametrize("mode", STEPS)
def test_only_what_is_asked_for_gets_a_gradient(mode):
    x, state, w, b = drawn(mode)
    x, state = x.detach(), tuple(s.detach() for s in state)
    along(x, state, Step(mode, w, None), False)[0].sum().backward()
    assert w.grad is not None and b.grad is None and x.grad is None


def test_results_that_are_written_to_are_noticed():
    x, state, w, b = drawn("LSTM")
    out, _ = along(x, state, Step("LSTM", w, b), False)
    out.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("mode", STEPS)
def test_the_state_after_the_last_step_may_be_written_to(mode):
    x, state, w, b = drawn(mode)
    found = []
    for change in (False, True):
        out, last = along(x, state, Step(mode, w, b), False)
        total = out.sum()
        if change:
            for each in last:
                each.mul_(2.0)
        w.grad = None
        total.backward()
        found.append(w.grad.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_compiled_layer_is_the_layer(kind):
    dt.manual_seed(0)
    layer = kind(3, 4, num_layers=2, bidirectional=True)
    run = dt.compile(layer)
    found = []
    for call in (layer, run, run, run):
        layer.zero_grad()
        dt.manual_seed(1)
        x = dt.randn(T, N, 3, requires_grad=True)
        out, last = call(x)
        out.sum().backward()
        found.append(
            [out.tolist(), x.grad.tolist(), *[p.grad.tolist() for p in layer.parameters()]]
        )
    assert found[0] == found[1] == found[2] == found[3] and not run.forward.eager


def test_what_is_no_array_of_the_host_is_spelled_out():
    x, state, w, b = drawn("GRU", dtype=dt.float32)
    step = Step("GRU", w, b)
    assert not Step("GRU", w, b, dt.ones(2, H)).is_one_operation(x, state)
    assert not Step("GRU", w.half(), b.half()).is_one_operation(x.half(), state)
    assert not step.is_one_operation(x.double(), state)
    assert not step.is_one_operation(x[:, :0], tuple(s[:0] for s in state))
    seen = []

    def fn(x):
        seen.append(step.is_one_operation(x, state))
        return along(x, state, step, False)[0]

    rows = dt.stack([x, x * 2])
    close(dt.func.vmap(fn)(rows), [along(r, state, step, False)[0] for r in rows], 1e-6)
    assert seen == [False]
    value, slope = dt.func.jvp(fn, (x,), (dt.ones_like(x),))
    assert value.shape == slope.shape and not seen[-1]


@pytest.mark.parametrize("kind", ["GRU", "RNN"])
def test_the_program_may_write_to_the_result(kind):
    net, x = getattr(nn, kind)(3, 4), dt.randn(T, N, 3)
    found = []
    for in_place in (True, False):
        net.zero_grad()
        out, _ = net(x)
        out = out.mul_(2.0) if in_place else out * 2.0
        out.sum().backward()
        found.append([p.grad.tolist() for p in net.parameters()])
    assert found[0] == found[1]
