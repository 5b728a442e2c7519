"""Tensors between devices, on the double: where they are made, moved, indexed, and may not meet."""

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.core.types.device import get_default_device, set_default_device
from disttrain.errors import DeviceError, DimError

pytestmark = pytest.mark.usefixtures("double")
F = nn.functional


def numbers():
    return dt.arange(24.0).reshape(4, 6)


def test_devices_have_numbers():
    assert dt.ones(1, device="cuda").device == dt.device("cuda", 0) != dt.device("cuda")
    assert dt.device(1) == dt.device("cuda:1") and dt.ones(1, device=1).get_device() == 1
    assert dt.zeros(1).get_device() == -1 and not dt.zeros(1).is_cuda
    with pytest.raises(DeviceError, match="there are 2 cuda devices"):
        dt.zeros(1, device="cuda:2")
    with pytest.raises(RuntimeError, match="index was passed explicitly"):
        dt.device("cuda:1", 0)


def test_a_device_as_context_and_as_default():
    with dt.device("cuda:1"):
        assert dt.zeros(2).device.index == 1
        with dt.device("cuda"):
            assert dt.tensor([1]).device.index == 0
        layer = nn.Linear(3, 2)
        assert layer(dt.ones(1, 3)).device.index == 1 and dt.from_numpy(np.ones(1)).is_cpu
    set_default_device("cuda")
    try:
        assert get_default_device() == dt.device("cuda:0") == dt.randperm(3).device
        host = dt.ones(2, 3, device="cpu", requires_grad=True)
        host.unbind(0)[0].sum().backward()
        assert host.grad.is_cpu
    finally:
        set_default_device(None)
    assert dt.zeros(1).is_cpu


def test_forms_of_to(double):
    host, far = numbers(), numbers().cuda()
    assert far.to("cuda") is far.to(far) is far.cuda() is far.cuda(0) and host.cpu() is host
    like = host.to(far.double())
    assert like.is_cuda and like.dtype is dt.float64
    assert far.to("cuda", copy=True).data_ptr() != far.data_ptr()
    assert host.to("cuda", dt.half, True).dtype is dt.float16 and host.to(1).device.index == 1
    assert far.to(dt.device("cpu"), dt.float64).dtype is dt.float64 and far.to(None) is far
    assert far.t().cpu().stride() == host.t().cuda().stride() == host.t().stride()
    assert host.t().to("cuda", memory_format=dt.contiguous_format).is_contiguous()
    assert far.type() == "disttrain.cuda.FloatTensor" and far.cpu().tolist() == host.tolist()
    assert far.to("meta").is_meta
    for wrong in ((3.5,), ("cuda", "cuda"), ()):
        if wrong:
            with pytest.raises(TypeError, match="invalid combination"):
                host.to(*wrong)
    with pytest.raises(DeviceError, match="must be cuda device"):
        host.cuda("cpu")
    with pytest.raises(DeviceError, match="no data"):
        dt.zeros(2, device="meta").to("cuda")


FACTORIES = {
    "zeros": lambda d, x: dt.zeros(2, device=d),
    "ones_like": lambda d, x: dt.ones_like(x),
    "full": lambda d, x: dt.full((2,), 3, device=d),
    "full_like": lambda d, x: dt.full_like(x, 2.0),
    "eye": lambda d, x: dt.eye(3, device=d),
    "arange": lambda d, x: dt.arange(1, 9, 2, device=d),
    "arange of floats": lambda d, x: dt.arange(0.0, 1.0, 0.3, device=d),
    "linspace": lambda d, x: dt.linspace(0, 1, 5, device=d),
    "logspace": lambda d, x: dt.logspace(0, 1, 5, device=d),
    "tensor": lambda d, x: dt.tensor([[1, 2]], device=d),
    "tensor of tensor": lambda d, x: dt.tensor(x),
    "tensor of numbers there": lambda d, x: dt.tensor([x[0, 0], x[0, 1]], device=d),
    "as_tensor": lambda d, x: dt.as_tensor(np.ones(3, np.float32), device=d),
    "new_tensor": lambda d, x: x.new_tensor([1, 2]),
    "new_zeros": lambda d, x: x.new_zeros(3),
    "new_full": lambda d, x: x.new_full((2,), 7.0),
    "new": lambda d, x: x.new([1.0, 2.0]),
    "one_hot": lambda d, x: F.one_hot(dt.tensor([1, 2], device=d), 4),
    "nonzero": lambda d, x: (x > 3).nonzero(),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_new_tensors(name):
    want = FACTORIES[name]("cpu", numbers())
    for device in ("cuda:0", "cuda:1"):
        got = FACTORIES[name](device, numbers().to(device))
        assert got.device == dt.device(device) and got.dtype is want.dtype
        assert got.tolist() == want.tolist()


def test_random_tensors_lie_there():
    there = {"device": "cuda:1"}
    made = [dt.rand(3, **there), dt.randn(3, **there), dt.randint(5, (2,), **there),
            dt.randperm(4, **there), dt.normal(0.0, 1.0, (3,), **there),
            dt.empty(3, **there).normal_(), dt.randn_like(dt.ones(2, **there))]  # fmt: skip
    assert {t.get_device() for t in made} == {1}


INDICES = {
    "number": lambda x, at: x[1],
    "slices": lambda x, at: x[1:3, ::2],
    "new axis": lambda x, at: x[None, ..., 1],
    "list": lambda x, at: x[[1, 2]],
    "numpy": lambda x, at: x[np.array([3, 0])],
    "index": lambda x, at: x[at(dt.tensor([2, 0, -2]))],
    "two": lambda x, at: x[at(dt.tensor([2, 0, 2])), at(dt.tensor([1, 1, 5]))],
    "mask": lambda x, at: x[at(numbers() > 5)],
    "rows by mask": lambda x, at: x[at(dt.tensor([True, False, True, True]))],
    "number there": lambda x, at: x[at(dt.tensor(2))],
    "gather": lambda x, at: x.gather(1, dt.tensor([[1, 2]] * 4).to(x.device)),
}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_indices_of_the_host_and_there(name, place):
    """Values and gradients; PyTorch takes the host's indices for tensors on devices, too."""
    host, far = numbers().requires_grad_(), numbers().cuda().requires_grad_()
    want = INDICES[name](host, lambda t: t)
    got = INDICES[name](far, lambda t: t.to(place))
    assert got.is_cuda and got.tolist() == want.tolist()
    want.sum().backward()
    got.sum().backward()
    assert far.grad.is_cuda and far.grad.tolist() == host.grad.tolist()


def written(x, at):
    x[1] = 5.0
    x[2, 1:3] = at(dt.tensor([1.0, 2.0]))
    x[at(dt.tensor([2, 0]))] = 1.5
    x[x > 20] = 0.0
    x[0] = dt.ones(6)  # also of the host, as in PyTorch
    x[[0, 1], [2, 3]] = dt.tensor(9.0)
    x[at(dt.tensor([3])), 0] += 4
    return x


def test_writing_by_index():
    assert written(numbers().cuda(), lambda t: t.cuda()).tolist() == (
        written(numbers(), lambda t: t).tolist()
    )


def test_indices_that_do_not_fit():
    with pytest.raises(DimError, match="index 9 is out of range"):
        numbers().cuda()[dt.tensor([9])]
    with pytest.raises(RuntimeError, match="either on cpu or on the same device"):
        numbers()[dt.tensor([1]).cuda()]


MIXED = {
    "add": lambda x: x.cuda() + x,
    "two devices": lambda x: x.cuda() + x.to("cuda:1"),
    "matmul": lambda x: x.cuda() @ x.t(),
    "linear": lambda x: nn.Linear(6, 2)(x.cuda()),
    "layer_norm": lambda x: F.layer_norm(x.cuda(), (6,), dt.ones(6)),
    "cat": lambda x: dt.cat([x.cuda(), x]),
    "in place": lambda x: x.cuda().add_(x),
    "loss": lambda x: F.mse_loss(x.cuda(), x),
    "embedding": lambda x: F.embedding(dt.tensor([1]), x.cuda()),
    "number of the device": lambda x: x * dt.tensor(2.0, device="cuda"),
    "gradient": lambda x: (x.cuda().requires_grad_() * 2).backward(x),
}


@pytest.mark.parametrize("name", MIXED)
def test_tensors_of_two_devices_do_not_meet(name):
    with pytest.raises(DeviceError, match="Expected all tensors to be on the same device") as told:
        MIXED[name](numbers())
    assert "cuda:0" in str(told.value) and isinstance(told.value, RuntimeError)
    if name != "gradient":
        assert f"{__file__}:" in str(told.value) and "cpu" in str(told.value) + "cpu" * (
            name == "two devices"
        )


def test_numbers_of_the_host_go_along():
    far = numbers().cuda()
    got = far * dt.tensor(2.0) + dt.tensor(1, dtype=dt.int64)
    assert got.dtype is dt.float32 and got.tolist() == (numbers() * 2 + 1).tolist()
    assert dt.where(far > 3, far, dt.tensor(1.0)).sum().item() == (
        dt.where(numbers() > 3, numbers(), dt.tensor(1.0)).sum().item()
    )


def test_the_ways_to_the_host():
    far = numbers().cuda()
    for call in (far.numpy, lambda: np.asarray(far)):
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor"):
            call()
    assert (far.requires_grad_().numpy(force=True) == numbers().numpy()).all()
    assert far[1, 2].item() == 8.0 == float(far[1, 2]) and bool(far[1, 1] > 0) and len(far) == 4
    assert dt.equal(far, far.clone()) and 3.0 in far and range(5)[dt.tensor(2).cuda()] == 2
    assert f"{far[0, 1]:.2f}" == "1.00"


def test_pinned_memory(double):
    host = numbers()
    pinned = host.pin_memory()
    assert pinned.is_pinned() and not host.is_pinned() and pinned.pin_memory() is pinned
    double.counts.clear()
    far = pinned.to("cuda", non_blocking=True)
    back = far.to("cpu", non_blocking=True)
    assert not double.counts.waits and back.is_pinned()
    double.synchronize()
    assert dt.equal(back, host) and dt.equal(far.cpu(), host)
    made = [dt.empty(3, pin_memory=True), dt.zeros(3, pin_memory=True), dt.rand(3, pin_memory=True),
            dt.tensor([1.0], pin_memory=True), dt.full((2,), 1.0, pin_memory=True)]  # fmt: skip
    assert all(t.is_pinned() for t in made)
    with pytest.raises(DeviceError, match="only dense CPU tensors"):
        far.pin_memory()


def test_writes_from_other_devices():
    far, other = dt.zeros(4, 6, device="cuda"), dt.zeros(4, 6, device="cuda:1")
    far.copy_(numbers())
    other.copy_(far, non_blocking=True)
    host = dt.zeros(4, 6).copy_(other)
    assert dt.equal(host, numbers())
    leaf = numbers().requires_grad_()
    (far.copy_(leaf) * 2).sum().backward()
    assert leaf.grad.is_cpu and leaf.grad.unique().tolist() == [2.0]


def test_what_indices_cost(double):
    far, rows = numbers().cuda(), dt.tensor([1, 2]).cuda()
    double.counts.clear()
    far[1], far[0, 1], far[rows], far[:, 1] = 3.0, 2.0, 0.0, far[:, 2]
    far[far > 20] = 1.0
    far[rows].add_(far[rows])
    assert not double.counts.transfers and not double.counts.waits
    far[far > 1], far.masked_select(far > 1), far.nonzero(), dt.where(far > 1)
    assert not double.counts.transfers and len(double.counts.waits) == 4  # for their sizes
    assert far.nonzero().tolist() == far.cpu().nonzero().tolist()
