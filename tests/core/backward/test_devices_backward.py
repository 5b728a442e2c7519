"""Backward through tensors of devices, on the double: where gradients lie, whose memory they have,
what hooks, functions and checkpoints see."""

import pytest

import disttrain as dt
from disttrain import func
from disttrain.autograd import detect_anomaly, grad, gradcheck, graph
from disttrain.core.backward.checkpoint import checkpoint
from disttrain.errors import AutogradError, DeviceError

pytestmark = pytest.mark.usefixtures("double")


def leaf(where="cuda"):
    return dt.arange(24.0, device=where).reshape(4, 6).requires_grad_()


def same_gradient(compute):
    host, far = leaf("cpu"), leaf()
    compute(host).backward()
    compute(far).backward()
    assert far.grad.is_cuda and dt.allclose(far.grad.cpu(), host.grad)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: (x * x).sum(),
        lambda x: ((x + 1).log() @ x.t()).mean(),
        lambda x: (x.softmax(-1) * x).sum() + x.std(0).sum(),
        lambda x: (x + dt.ones(6, device=x.device)).exp().amax(),
        lambda x: x.max(1)[0].sum() + x.unbind(0)[1].sum() + x.split(2, 1)[2].sum(),
        lambda x: dt.cat([x, x * 2], 1).cumsum(0).sum(),
        lambda x: x.half().float().sum() + x.double().sum().float(),
    ],
)
def test_gradients_are_the_hosts(compute):
    same_gradient(compute)


def test_gradients_cross_devices():
    host, first, second = leaf("cpu"), leaf(), leaf("cuda:1")
    moved = host.cuda()
    assert type(moved.grad_fn).__name__ == "ToCopyBackward0"
    (moved.to("cuda:1") * first.to("cuda:1") * second).cpu().sum().backward()
    places = [t.grad.device for t in (host, first, second)]
    assert places == [dt.device("cpu"), dt.device("cuda:0"), dt.device("cuda:1")]
    assert dt.equal(host.grad, first.grad.cpu()) and dt.equal(second.grad.cpu(), host.grad)


def test_a_number_of_the_host_gets_its_gradient_there():
    scale = dt.tensor(2.0, requires_grad=True)
    (leaf() * scale).sum().backward()
    assert scale.grad.is_cpu and scale.grad.item() == 276.0


def test_nobody_else_has_a_leafs_gradient():
    a, b = (dt.ones(3, device="cuda", requires_grad=True) for _ in range(2))
    seen = []
    a.register_hook(seen.append)
    given = dt.ones(3, device="cuda")
    (a + b).backward(given)
    a.grad.add_(1)
    assert b.grad.tolist() == seen[0].tolist() == given.tolist() == [1.0] * 3
    (a + b).sum().backward()
    assert a.grad.tolist() == [3.0] * 3 and b.grad.tolist() == [2.0] * 3
    before = b.grad.data_ptr()
    (a + b).sum().backward()
    assert b.grad.data_ptr() == before


def test_hooks_and_kept_gradients():
    x, places = leaf(), []
    h = x * 2
    h.retain_grad()
    h.register_hook(lambda g: g * 2)
    h.grad_fn.register_prehook(lambda gs: places.append(gs[0].device))
    x.register_post_accumulate_grad_hook(lambda p: places.append(p.grad.device))
    (h * h).sum().backward()
    assert dt.equal(h.grad, 4 * h.detach()) and dt.equal(x.grad, 2 * h.grad)
    assert places == [x.device] * 2 and type(h.grad_fn).__name__ == "MulBackward0"


def test_second_derivatives():
    x = leaf()
    (g,) = grad((x**3).sum(), x, create_graph=True)
    g.sum().backward()
    assert dt.allclose(x.grad, 6 * x.detach()) and g.requires_grad


def test_writes_are_counted_and_recorded():
    x = leaf()
    y = x * 2
    z = y * y
    y.add_(1)
    with pytest.raises(AutogradError, match="changed in-place"):
        z.sum().backward()

    def written(x):
        y = x.clone()
        y[0] *= 3
        y.t()[1].mul_(2)
        y.view(2, 12)[1] = y.view(2, 12)[0]
        y[:, 2] = dt.ones(4, device=x.device)
        return (y * y).sum()

    same_gradient(written)


def test_a_gradient_elsewhere_is_refused():
    x = leaf()
    with pytest.raises(DeviceError, match="gradient 0 is on cpu"):
        (x * 2).backward(dt.ones(4, 6))
    with pytest.raises(DeviceError, match="given for a tensor on cuda:0"):
        x.grad = dt.ones(4, 6)
    x.sum().backward(dt.tensor(2.0))  # a number may come from anywhere, as in PyTorch
    assert x.grad.unique().tolist() == [2.0]


class Twice(dt.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x.sum()

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        assert g.device == h.device == x.device == y.device
        return g * y + h, g * x


def test_functions_of_programs():
    same_gradient(lambda x: Twice.apply(x, x * 2)[0].sum())
    same_gradient(lambda x: Twice.apply(x, x * 2)[1])


def test_saved_tensors_on_the_host():
    for pinned in (False, True):
        x = leaf()
        with graph.save_on_cpu(pin_memory=pinned):
            y = (x * x).sin()
        y.sum().backward()
        assert dt.allclose(x.grad, 2 * x.detach() * (x * x).detach().cos())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_draw_the_same_numbers(reentrant):
    x, seen = leaf(), []

    def part(a):
        seen.append(dt.rand(4, 6, device=a.device))
        return (a * seen[-1]).sin()

    checkpoint(part, x, use_reentrant=reentrant).sum().backward()
    assert len(seen) == 2 and dt.equal(*seen) and x.grad.is_cuda
    x.grad = None
    checkpoint(part, x, use_reentrant=reentrant).sum().backward()
    assert not dt.equal(seen[0], seen[2])


def test_anomaly_and_gradcheck():
    with detect_anomaly(), pytest.raises(RuntimeError, match="nan values in its 0th output"):
        (leaf().sub(leaf().detach()).sqrt() * 0).sum().backward()
    x = dt.tensor([0.5, 1.5], dtype=dt.float64, device="cuda", requires_grad=True)
    assert gradcheck(lambda a: (a * a).sin(), (x,), check_forward_ad=True, check_batched_grad=True)


def test_transforms():
    x = leaf().detach()
    host = x.cpu()

    def pick(a):
        return (a * a).sum() + a[dt.tensor([0, 1])].sum()

    for transform in (
        lambda t: func.vmap(pick)(t),
        lambda t: func.grad(lambda a: (a.sin() * a).sum())(t),
        lambda t: func.jvp(lambda a: a.sin() * a, (t,), (dt.ones_like(t),))[1],
        lambda t: func.jacrev(lambda a: a.sin())(t[0]),
        lambda t: func.hessian(lambda a: (a**3).sum())(t[0]),
    ):
        got = transform(x)
        assert got.is_cuda and dt.allclose(got.cpu(), transform(host), atol=1e-5)


def test_compiled_functions():
    run = dt.compile(lambda a, b: ((a * b).sin() + 1).sum())
    x = leaf()
    host = leaf("cpu")
    run(host, host.detach()).backward()
    run(x, x.detach()).backward()
    x.grad = None
    run(x, x.detach()).backward()  # replayed
    host.grad = None
    run(host, host.detach()).backward()
    assert x.grad.is_cuda and dt.allclose(x.grad.cpu(), host.grad, atol=1e-5)


def test_deep_graphs_and_odd_shapes():
    x = y = dt.ones(2, device="cuda:1", requires_grad=True)
    for _ in range(100):
        y = y * 1.01
    y.sum().backward()
    assert x.grad.get_device() == 1
    empty = dt.zeros(0, 3, device="cuda", requires_grad=True)
    (empty * 2).sum().backward()
    assert empty.grad.shape == (0, 3)
    number = dt.tensor(3.0, device="cuda", requires_grad=True)
    (number * number).backward()
    assert number.grad.item() == 6.0
