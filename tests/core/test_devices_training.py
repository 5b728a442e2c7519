"""Training on devices, on the double: modules, optimizers, clipping; what travels, is saved."""

import copy
import io
import pickle

import pytest

import disttrain as dt
from disttrain import nn, optim
from disttrain.data import DataLoader, TensorDataset
from disttrain.errors import DeviceError

pytestmark = pytest.mark.usefixtures("double")


def test_a_step_moves_nothing_and_waits_for_nothing(double):
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).cuda()
    optimizer = optim.AdamW(model.parameters())
    x, y = dt.ones(4, 6, device="cuda"), dt.zeros(4, 3, device="cuda")
    for _ in range(2):  # the state is made in the first
        double.counts.clear()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert double.counts.transfers == 0 and not double.counts.waits


OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1}),
    ("Adam", {"maximize": True, "weight_decay": 0.1}),
    ("AdamW", {"amsgrad": True}),
    ("Adagrad", {"initial_accumulator_value": 0.1}),
    ("Adadelta", {}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("Rprop", {}),
    ("ASGD", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("Adamax", {}),
    ("Adafactor", {}),
    ("Muon", {}),
    ("LBFGS", {"line_search_fn": "strong_wolfe"}),
]


def trained(name, settings, where):
    weight = (dt.arange(24.0).reshape(4, 6) / 24).to(where).requires_grad_()
    target = dt.linspace(0, 1, 24).reshape(4, 6).to(where)

    def closure():
        optimizer.zero_grad()
        loss = ((weight - target) ** 2).sum()
        loss.backward()
        return loss

    optimizer = getattr(optim, name)([weight], **settings)
    optimizer.step(closure)
    optimizer.step(closure)
    again = getattr(optim, name)([weight], **settings)
    again.load_state_dict(optimizer.state_dict())
    optimizer = again
    optimizer.step(closure)
    kept = [v for v in again.state[weight].values() if isinstance(v, dt.Tensor) and v.ndim]
    assert all(v.device == weight.device for v in kept)
    return weight.detach()


@pytest.mark.parametrize(("name", "settings"), OPTIMIZERS)
def test_optimizers(name, settings):
    far = trained(name, settings, "cuda:1")
    assert far.get_device() == 1
    assert dt.allclose(far.cpu(), trained(name, settings, "cpu"), atol=1e-6)


def test_an_optimizers_state_goes_where_its_parameters_are():
    host, far = nn.Parameter(dt.ones(3)), nn.Parameter(dt.ones(3, device="cuda"))
    one, other = optim.Adam([host]), optim.Adam([far], lr=dt.tensor(0.1))
    host.grad, far.grad = dt.ones(3), dt.ones(3, device="cuda")
    one.step()
    other.load_state_dict(one.state_dict())
    state = other.state[far]
    assert state["exp_avg"].is_cuda and state["step"].is_cpu
    other.step()
    assert state["exp_avg"].is_cuda and other.state[far]["step"].item() == 2


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf"), 0.0])
def test_clipping(norm):
    def clipped(where):
        tensors = [dt.arange(4.0, device=where) - 1.5, dt.ones(2, 3, device=where)]
        for t in tensors:
            t.requires_grad_().grad = t.detach() * 2
        total = nn.utils.clip_grad_norm_(tensors, 1.0, norm_type=norm)
        nn.utils.clip_grad_value_(tensors, 0.3)
        assert total.device == tensors[0].device
        return [total, *(t.grad for t in tensors)]

    for got, want in zip(clipped("cuda"), clipped("cpu"), strict=True):
        assert dt.allclose(got.cpu(), want)


def test_modules_move_and_stay_themselves():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    weight = model[0].weight
    weight.grad = dt.ones(4, 3)
    model.to("cuda", non_blocking=True)
    assert model[0].weight is weight and weight.is_leaf and weight.is_cuda and weight.grad.is_cuda
    assert model[1].running_mean.is_cuda and model[1].num_batches_tracked.is_cuda
    twin = copy.deepcopy(model)
    assert twin[0].weight.is_cuda and twin[0].weight.data_ptr() != weight.data_ptr()
    model.cpu()
    assert weight.is_cpu and weight.grad.is_cpu
    model.cuda(1)
    assert weight.get_device() == 1 == weight.grad.get_device()
    model.load_state_dict(twin.state_dict())
    model.load_state_dict({k: v.cpu() for k, v in twin.state_dict().items()})
    assert weight.get_device() == 1 and dt.equal(weight.cpu(), twin[0].weight.cpu())
    made = nn.Linear(3, 4, device="meta").to_empty(device="cuda:1")
    assert made.weight.get_device() == 1 and nn.Linear(2, 2, device="cuda").bias.is_cuda
    with pytest.raises(DeviceError, match="there are 2"):
        model.cuda(2)


def test_initialising_there():
    where = {"device": "cuda"}
    square = nn.init.orthogonal_(dt.empty(4, 6, **where))
    assert dt.allclose(square @ square.t(), dt.eye(4, **where), atol=1e-5)
    assert dt.equal(nn.init.eye_(dt.empty(2, 2, **where)), dt.eye(2, **where))
    for fill in ("xavier_uniform_", "kaiming_normal_", "trunc_normal_", "ones_"):
        assert getattr(nn.init, fill)(dt.empty(3, 3, **where)).is_cuda


def test_copies_and_pickles():
    x = dt.arange(6.0, device="cuda:1").reshape(2, 3).requires_grad_()
    for twin in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert twin.device == x.device and dt.equal(twin, x) and twin.requires_grad
    assert pickle.loads(pickle.dumps(dt.device("cuda", 1))) == x.device and x.is_shared()


def saved(value):
    file = io.BytesIO()
    dt.save(value, file)

    def load(**how):
        file.seek(0)
        return dt.load(file, **how)

    return load


def test_saving_and_loading():
    whole = dt.arange(12.0, device="cuda:0").reshape(3, 4)
    load = saved({"whole": whole, "row": whole[1], "host": dt.ones(2),
                  "p": nn.Parameter(dt.ones(2, device="cuda:1"))})  # fmt: skip
    found = load()
    assert [str(v.device) for v in found.values()] == ["cuda:0", "cuda:0", "cpu", "cuda:1"]
    assert type(found["p"]) is nn.Parameter and found["p"].requires_grad
    found["row"].zero_()
    assert found["whole"][1].sum().item() == 0.0 and found["whole"].sum().item() == 44.0
    for how in ("cpu", dt.device("cpu"), lambda storage, location: storage):
        assert all(v.is_cpu for v in load(map_location=how).values())
    moved = load(map_location={"cuda:0": "cuda:1", "cpu": "cuda:0"})
    assert [v.get_device() for v in moved.values()] == [1, 1, 0, 1]
    assert load(map_location="meta")["whole"].is_meta
    places = []
    load(map_location=lambda storage, location: places.append(location))
    assert places == ["cuda:0", "cuda:0", "cpu", "cuda:1"]


def test_a_device_that_is_not_there_when_loading(double):
    load = saved({"x": dt.ones(2, device="cuda:1")})
    double.ledgers.pop()
    with pytest.raises(DeviceError, match=r"(?s)cuda:1.*map_location='cpu'"):
        load()
    assert load(map_location="cpu")["x"].tolist() == [1.0, 1.0]


def test_storage():
    x = dt.arange(6.0, device="cuda").reshape(2, 3)
    assert x.untyped_storage().nbytes() == 24 and x[1:].storage_offset() == 3
    assert x[1].data_ptr() - x.data_ptr() == 12 and x.storage() == x[1:].storage()
    assert x.as_strided((2, 2), (1, 2), 1).tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert dt.zeros(1, device="cuda").set_(x.storage(), 1, (2,), (2,)).tolist() == [1.0, 3.0]
    assert x[1].clone().resize_(5)[:3].tolist() == [3.0, 4.0, 5.0]
    assert x.view(dt.int32).is_cuda and not x.t().is_contiguous() and x.t().stride() == (1, 3)
    parameter = nn.Parameter(dt.ones(2, 3))
    parameter.data = x
    assert parameter.is_cuda and parameter.data_ptr() == x.data_ptr()


def test_printing():
    x = dt.arange(3.0, device="cuda:1")
    assert repr(x) == "tensor([0., 1., 2.], device='cuda:1')"
    assert repr(x.half()) == "tensor([0., 1., 2.], device='cuda:1', dtype=disttrain.float16)"
    assert repr(dt.zeros(0, 2, device="cuda")) == "tensor([], device='cuda:0', size=(0, 2))"
    assert "device='cuda:1', requires_grad=True" in repr(nn.Parameter(x))


def test_batches_in_pinned_memory():
    loader = DataLoader(TensorDataset(dt.arange(8.0)), batch_size=4, pin_memory=True)
    batches = [x for (x,) in loader]
    assert all(x.is_pinned() for x in batches)
    assert batches[1].cuda(non_blocking=True).sum().item() == 22.0


def test_layers_that_make_tensors_themselves():
    for module, given in (
        (nn.LSTM(6, 5, batch_first=True), (2, 2, 6)),
        (nn.BatchNorm1d(6), (4, 6)),
        (nn.EmbeddingBag(10, 3, mode="mean"), None),
        (nn.LazyLinear(3), (4, 6)),
    ):
        x = dt.ones(4, 2, dtype=dt.int64) if given is None else dt.rand(*given)
        want = module(x)
        got = module.cuda()(x.cuda())
        want, got = (v[0] if isinstance(v, tuple) else v for v in (want, got))
        assert got.is_cuda and dt.allclose(got.cpu(), want, atol=1e-5)
        got.sum().backward()
        assert all(p.grad.is_cuda for p in module.parameters())


def test_writing_in_place_is_one_pass(double):
    x, y = dt.arange(6.0, device="cuda").reshape(2, 3), dt.ones(3, device="cuda")
    version = x._version
    double.counts.clear()
    x.add_(y).mul_(2).sub_(y).div_(4.0)
    assert x._version == version + 4 and not double.counts.launches
    assert x.tolist() == ((dt.arange(6.0).reshape(2, 3) + 1) * 2).sub_(1).div_(4).tolist()
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        y.add_(x)
    with pytest.raises(RuntimeError, match="single memory location"):
        y.expand(2, 3).add_(1.0)
    x[0].add_(x[1])
    x.t().mul_(x.t().clone())
    x.add_(x)
    assert x.sum().item() == pytest.approx(89.375)
