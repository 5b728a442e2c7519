"""checkpoint: the same gradients, less kept, whatever the function takes and returns."""

import pytest

import disttrain as dt
from disttrain.autograd import checkpoint, checkpoint_sequential, grad
from disttrain.core.backward.checkpoint import CheckpointError, set_checkpoint_early_stop
from disttrain.errors import AutogradError

KINDS = [False, True]


def leaf(*values):
    return dt.tensor(values, requires_grad=True)


def block(x):
    return (x.sin() * x).exp()


@pytest.mark.parametrize("reentrant", [None, *KINDS])
def test_gradients_are_the_same(reentrant):
    x, y = leaf(0.3, 0.7), leaf(0.3, 0.7)
    block(block(x)).sum().backward()
    again = checkpoint(block, y, use_reentrant=reentrant)
    checkpoint(block, again, use_reentrant=reentrant).sum().backward()
    assert x.grad.tolist() == y.grad.tolist()


@pytest.mark.parametrize("reentrant", KINDS)
def test_random_numbers_are_drawn_again(reentrant):
    dt.manual_seed(0)
    x = dt.ones(100, requires_grad=True)
    out = checkpoint(lambda x: dt.dropout(x, 0.5, True) * x, x, use_reentrant=reentrant)
    value = out.detach()
    after = dt.rand(3)
    out.sum().backward()
    assert ((x.grad != 0) == (value != 0)).all()
    state = dt.get_rng_state()
    dt.manual_seed(0)
    dt.dropout(dt.ones(100), 0.5, True)
    assert dt.rand(3).tolist() == after.tolist()
    dt.set_rng_state(state)


def test_nothing_but_the_inputs_is_kept():
    runs = []

    def counted(x):
        runs.append(1)
        return block(x)

    x = leaf(0.3)
    out = checkpoint(counted, x)
    assert len(runs) == 1
    out.backward(retain_graph=True)
    assert len(runs) == 2
    out.backward()
    assert len(runs) == 3
    with dt.no_grad():
        checkpoint(counted, x)
    assert len(runs) == 4


def test_any_arguments_and_results():
    w = leaf(2.0)

    def fn(pair, *, scale, name):
        a, b = pair["a"], pair["b"]
        return {"out": [a * b * scale * w], name: None}

    x = leaf(3.0)
    result = checkpoint(fn, {"a": x, "b": dt.tensor([5.0])}, scale=7.0, name="none")
    assert result["none"] is None
    result["out"][0].backward()
    assert x.grad.item() == 70.0 and w.grad.item() == 105.0


def test_no_input_needs_a_gradient():
    w = leaf(2.0)
    checkpoint(lambda x: x * w, dt.tensor([3.0])).backward()
    assert w.grad.item() == 3.0


def test_second_derivatives_and_grad():
    x = dt.tensor([0.3], dtype=dt.float64, requires_grad=True)
    (g,) = grad(checkpoint(block, x), x, create_graph=True)
    (want,) = grad(block(x), x, create_graph=True)
    assert g.item() == want.item()
    assert grad(g, x)[0].item() == pytest.approx(grad(want, x)[0].item(), rel=1e-12)


@pytest.mark.parametrize("early", [False, True])
def test_early_stop(early):
    runs = []

    def fn(x):
        out = x.sin().cos()
        runs.append(1)
        return out.clone()

    x = leaf(1.0)
    with set_checkpoint_early_stop(early):
        out = checkpoint(fn, x)
    out.backward()
    assert len(runs) == (1 if early else 2)
    checkpoint(fn, x, early_stop=False).backward()
    assert len(runs) == (3 if early else 4)


@pytest.mark.parametrize("early", [False, True])
def test_nested(early):
    def inner(x):
        return x.sin().exp()

    def outer(x):
        return checkpoint(inner, checkpoint(inner, x.cos()).sin()) * x

    x, y = leaf(0.3), leaf(0.3)
    inner(inner(x.cos()).sin()).mul(x).backward()
    with set_checkpoint_early_stop(early):
        checkpoint(lambda x: checkpoint(outer, x).sin(), y)
        checkpoint(outer, y).backward()
    assert y.grad.item() == pytest.approx(x.grad.item(), rel=1e-6)


def test_blocks_around_the_two_runs():
    seen = []

    class Block:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            seen.append(self.name)

        def __exit__(self, *exc):
            seen.append("end")

    x = leaf(0.3)
    checkpoint(block, x, context_fn=lambda: (Block("first"), Block("second"))).backward()
    assert seen == ["first", "end", "second", "end"]


@pytest.mark.parametrize(
    ("second", "text"),
    [(lambda x: x[:1].sin().exp(), "different metadata"), (lambda x: x.sin(), "different number"),
     (lambda x: x.sin().exp().sin().exp(), "different number")],
)  # fmt: skip
def test_functions_must_do_the_same_again(second, text):
    runs = []

    def fn(x):
        runs.append(1)
        return x.sin().exp() if len(runs) == 1 else second(x)

    x = leaf(0.3, 0.7)
    out = checkpoint(fn, x, early_stop=False)
    with pytest.raises(CheckpointError, match=text):
        out.sum().backward()


def test_the_check_can_be_left_out():
    runs = []

    def fn(x):
        runs.append(1)
        return x.sin() if len(runs) == 1 else x.double().sin().float()

    x = leaf(0.0)
    checkpoint(fn, x, determinism_check="none").backward()
    assert x.grad.item() == 1.0


def test_what_the_older_way_refuses():
    x = leaf(0.3)
    out = checkpoint(block, x, use_reentrant=True)
    with pytest.raises(AutogradError, match="use_reentrant=True"):
        grad(out, x)
    with pytest.raises(ValueError, match="keyword"):
        checkpoint(lambda x, k: x, x, k=1, use_reentrant=True)
    with pytest.warns(UserWarning, match="None of the inputs"):
        assert not checkpoint(block, dt.ones(1), use_reentrant=True).requires_grad
    with pytest.raises(AutogradError, match="none of output has requires_grad"):
        checkpoint(lambda x: x.detach(), x, use_reentrant=True).backward()


@pytest.mark.parametrize("reentrant", KINDS)
@pytest.mark.parametrize("segments", [1, 2, 5])
def test_sequential(reentrant, segments):
    layers = dt.nn.Sequential(*[dt.nn.Linear(3, 3) for _ in range(5)])
    x = dt.ones(2, 3, requires_grad=True)
    layers(x).sum().backward()
    want = [p.grad.tolist() for p in layers.parameters()]
    layers.zero_grad()
    checkpoint_sequential(layers, segments, x, use_reentrant=reentrant).sum().backward()
    assert [p.grad.tolist() for p in layers.parameters()] == want
    with pytest.raises(AutogradError, match="at least one"):
        checkpoint_sequential([], 2, x)


@pytest.mark.parametrize("kind", [dt.nn.BatchNorm1d, dt.nn.InstanceNorm1d])
@pytest.mark.parametrize("early", [False, True])
def test_running_statistics_move_in_the_second_run_too(kind, early):
    norm, plain = (kind(2, affine=False, track_running_stats=True) for _ in range(2))
    x = dt.randn(3, 2, 5, requires_grad=True)
    with set_checkpoint_early_stop(early):
        checkpoint(norm, x, use_reentrant=False).sum().backward()
    plain(plain(x) * 0 + x.detach())
    assert norm.running_mean.tolist() == pytest.approx(plain.running_mean.tolist(), abs=1e-6)
    assert norm.running_var.tolist() == pytest.approx(plain.running_var.tolist(), abs=1e-6)
    assert norm.num_batches_tracked.item() == plain.num_batches_tracked.item()
