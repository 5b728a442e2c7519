"""Mixed precision on the device double: which types operations compute in, gradients, scales."""

import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import nn
from disttrain.core.backward.checkpoint import checkpoint
from disttrain.errors import AutogradError, ConfigError

BF16, F32 = dt.bfloat16, dt.float32


@pytest.fixture
def model(double):
    dt.manual_seed(0)
    layers = nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)
    return nn.Sequential(*layers).to("cuda")


def on(dtype=BF16, **more):
    return dt.autocast("cuda", dtype, **more)


def test_products_are_low_and_sums_are_float32(model):
    x = dt.randn(5, 8, device="cuda")
    with on():
        h = model[0](x)
        assert h.dtype is BF16 and (h @ h.t()).dtype is BF16 and h.mean().dtype is BF16
        assert model[1](h).dtype is F32 and model[2](h).dtype is BF16
        assert h.sum().dtype is dt.exp(h).dtype is h.softmax(-1).dtype is F32
        assert (h + dt.ones(16, device="cuda")).dtype is F32  # by promotion, as ever
        assert dt.einsum("ij,kj->ik", x, x).dtype is BF16
        wide = x.double()
        assert (wide @ wide.t()).dtype is dt.float64
        assert (x.cpu() @ x.cpu().t()).dtype is F32  # of another kind of device
        with on(enabled=False):
            assert model[0](x).dtype is F32
        assert model[0](x).dtype is BF16 and dt.amp.is_autocast_enabled("cuda")
    assert model[0](x).dtype is F32 and not dt.amp.is_autocast_enabled("cuda")
    assert on(dt.float16)(model[0])(x).dtype is dt.float16  # as a decorator
    assert dt.autocast("cuda").fast_dtype is dt.float16


def test_gradients_have_the_types_of_parameters(model):
    x, y = dt.randn(5, 8, device="cuda"), dt.randint(0, 4, (5,), device="cuda")
    F.cross_entropy(model(x), y).backward()
    want = [p.grad.cpu() for p in model.parameters()]
    model.zero_grad()
    with on():
        loss = F.cross_entropy(model(x), y)
        loss.backward()  # inside or outside: computes in the types of forward
    for p, w in zip(model.parameters(), want, strict=True):
        assert p.grad.dtype is F32
        assert dt.allclose(p.grad.cpu(), w, atol=0.03)


def test_casts_of_parameters_are_kept_while_the_block_lasts(model):
    weight, x = model[0].weight, dt.randn(5, 8, device="cuda")

    def casts():
        a, b = F.linear(x, weight), F.linear(x, weight)
        return a.grad_fn.next_functions[1][0], b.grad_fn.next_functions[1][0]

    with on():
        first, second = casts()
        assert first is second
        with dt.no_grad():
            weight.add_(1)
        assert casts()[0] is not first  # it has changed
    with on(cache_enabled=False):
        first, second = casts()
        assert first is not second


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_runs_again_in_the_same_types(model, reentrant):
    x = dt.randn(5, 8, device="cuda", requires_grad=True)
    seen = []

    def part(t):
        out = model[0](t)
        seen.append(out.dtype)
        return out

    with on():
        out = checkpoint(part, x, use_reentrant=reentrant, early_stop=False)
    out.backward(dt.ones_like(out))
    assert seen == [BF16, BF16] and x.grad.dtype is F32


def test_custom_functions(double):
    seen = []

    class Own(dt.autograd.Function):
        @staticmethod
        @dt.amp.custom_fwd(device_type="cuda", cast_inputs=F32)
        def forward(ctx, x):
            seen.append((x.dtype, dt.amp.is_autocast_enabled("cuda")))
            return x * 2

        @staticmethod
        @dt.amp.custom_bwd(device_type="cuda")
        def backward(ctx, g):
            seen.append((g.dtype, dt.amp.is_autocast_enabled("cuda")))
            return g * 2

    x = dt.ones(3, device="cuda", dtype=BF16, requires_grad=True)
    with on():
        y = Own.apply(x)
        y.backward(dt.ones_like(y))
    assert seen == [(F32, False), (F32, False)] and y.dtype is F32


def test_without_a_device_nothing_happens():
    with pytest.warns(UserWarning, match="no such device here"), dt.autocast("cuda"):
        assert (dt.ones(2, 2) @ dt.ones(2, 2)).dtype is F32
    with dt.autocast("cuda", enabled=False):
        pass
    for kind in (F32, dt.float64):
        with pytest.warns(UserWarning, match="Disabling autocast"), dt.autocast("cpu", kind):
            assert not dt.amp.is_autocast_enabled("cpu")
    with pytest.raises(ValueError, match="device_type"):
        dt.autocast(3)
    with pytest.warns(UserWarning, match="no effect"):
        scaler = dt.amp.GradScaler()
    assert not scaler.is_enabled() and scaler.get_scale() == 1.0 and scaler.state_dict() == {}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_scaled_steps(request, device):
    if device == "cuda":
        request.getfixturevalue("double")
    w = dt.ones(3, device=device, requires_grad=True)
    optimizer = dt.optim.SGD([w], lr=0.5)
    scaler = dt.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
    for step, bad in enumerate((False, True, False, False)):
        optimizer.zero_grad()
        scaler.scale((w * (float("inf") if bad else 1.0)).sum()).backward()
        assert bad or w.grad.tolist() == [scaler.get_scale()] * 3
        before = w.tolist()
        if step == 0:
            scaler.unscale_(optimizer)
            assert w.grad.tolist() == [1.0] * 3
            with pytest.raises(AutogradError, match="already been called"):
                scaler.unscale_(optimizer)
        scaler.step(optimizer)
        assert w.tolist() == (before if bad else [v - 0.5 for v in before])
        with pytest.raises(AutogradError, match="step"):
            scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 8.0  # halved once, doubled after two good steps
    other = dt.amp.GradScaler(device)
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()
    scaler.update(3.0)
    assert scaler.get_scale() == 3.0
    with pytest.raises(ConfigError, match=r"growth_factor=1\.0.*one above 1 and one below"):
        dt.amp.GradScaler(device, growth_factor=1.0)


def test_what_is_no_kind_of_device_is_refused():
    with pytest.raises(RuntimeError, match="'gpu' given; Expected one of cpu, cuda"):
        dt.autocast("gpu")
