"""Backward passes over several streams and devices: each operation runs where its forward ran."""

import threading

import pytest
from standins.device_double.double import StreamRace

import disttrain as dt
from disttrain import cuda, nn
from disttrain.autograd import checkpoint


def _model(device="cuda"):
    dt.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 2)).to(device)


def _on(stream, fn):
    """``fn()`` on ``stream``, after what the current one was given so far."""
    stream.wait_stream(cuda.current_stream(stream.device_index))
    with cuda.stream(stream):
        return fn()


def _in_thread(fn):
    errors = []

    def body():
        try:
            fn()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _grads(model):
    return [p.grad.tolist() for p in model.parameters()]


@pytest.mark.parametrize("call", [lambda fn: fn(), _in_thread])
def test_backward_runs_on_the_streams_of_its_forward(double, call):
    x, want, model = dt.ones(3, 4, device="cuda"), _model(), _model()
    want(x).pow(2).sum().backward()
    here, side = cuda.current_stream(), cuda.Stream()
    loss = _on(side, lambda: model(x).pow(2).sum())
    used = []
    model[0].weight.register_hook(lambda g: used.append(cuda.current_stream()))
    call(loss.backward)  # which nothing was told to wait for
    assert used == [side] and cuda.current_stream() == here
    assert _grads(model) == _grads(want)


def test_backward_in_another_stream_and_of_branches(double):
    x = dt.ones(3, 4, device="cuda", requires_grad=True)
    models, sides = [_model(), _model(), _model()], [cuda.Stream(), cuda.Stream()]
    parts = [_on(s, lambda m=m: m(x).sum()) for m, s in zip(models, sides, strict=False)]
    parts.append(models[2](x).sum())
    for side in sides:
        cuda.current_stream().wait_stream(side)
    whole = sum(parts)
    other = cuda.Stream()
    with cuda.stream(other):
        whole.backward()
        got = x.grad.sum()
    cuda.current_stream().wait_stream(other)
    assert got.item() == pytest.approx(3 * sum(_plain(x)), rel=1e-4)
    for _ in range(3):  # memory that the pass let go of serves the next one
        for side, model in zip(sides, models, strict=False):
            _on(side, lambda m=model: m(x).sum()).backward()


def _plain(x):
    y = x.detach().requires_grad_()
    _model()(y).sum().backward()
    return y.grad.flatten().tolist()


def test_what_no_event_orders_is_still_told(double):
    x = dt.ones(3, device="cuda", requires_grad=True)
    y = _on(cuda.Stream(), lambda: x * 2)
    with pytest.raises(StreamRace):
        y.sum()


def test_second_order_saved_hooks_and_failures(double):
    side = cuda.Stream()
    w = dt.ones(4, 4, device="cuda", requires_grad=True)
    with dt.autograd.graph.save_on_cpu():
        y = _on(side, lambda: (w @ w).tanh().sum())
    (g,) = dt.autograd.grad(y, w, create_graph=True)
    g.pow(2).sum().backward()
    assert w.grad.isfinite().all()
    z = _on(side, lambda: (w * 2).exp())
    z.register_hook(lambda g: 1 / 0)
    total = _on(side, z.sum)
    with pytest.raises(ZeroDivisionError):
        total.backward()
    assert cuda.current_stream() == cuda.default_stream() and cuda.current_device() == 0


def test_hooks_and_functions_find_the_device_of_their_gradients(double):
    class Twice(dt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * dt.full((1,), 2.0, device="cuda")  # of the current device

    x = dt.ones(3, device="cuda:1", requires_grad=True)
    found = []
    y = Twice.apply(x)
    y.register_hook(lambda g: found.append(cuda.current_device()))
    (y.sum() + dt.ones(1, device="cuda:0").to("cuda:1")).sum().backward()
    assert x.grad.tolist() == [2.0] * 3 and found == [1] and cuda.current_device() == 0


def test_walks_deep_inside_each_other_stay_where_they_are(double):
    def nest(depth):
        if not depth:
            return lambda t: t + dt.ones(1, device="cuda")
        inner = nest(depth - 1)
        return lambda t: checkpoint(inner, t * 1.0, use_reentrant=True)

    with cuda.device(1):
        x, side = dt.ones(3, device="cuda", requires_grad=True), cuda.Stream()
        _on(side, lambda: nest(30)(x).sum().backward())
        cuda.current_stream().wait_stream(side)
        assert x.grad.tolist() == [1.0] * 3


def test_two_threads_in_one_stream(double):
    side, turn, left = cuda.Stream(), threading.Barrier(2, timeout=20), []

    def body(number):
        cuda.set_device(number)
        turn.wait()
        if number:
            turn.wait()
        with side:
            if not number:
                turn.wait()
            turn.wait()
            if number:
                turn.wait()
        if not number:
            turn.wait()
        left.append((cuda.current_device(), cuda.current_stream().device_index) == (number,) * 2)

    second = threading.Thread(target=body, args=(1,))
    second.start()
    _in_thread(lambda: body(0))
    second.join()
    assert left == [True, True]


def test_default_devices_of_threads_are_their_own(double):
    turn, got = threading.Barrier(2, timeout=20), {}

    def body(number):
        with dt.device(f"cuda:{number}"):
            turn.wait()
            got[number] = dt.ones(1).device.index
            turn.wait()

    second = threading.Thread(target=body, args=(1,))
    second.start()
    _in_thread(lambda: body(0))
    second.join()
    assert got == {0: 0, 1: 1} and dt.ones(1).device == "cpu"
