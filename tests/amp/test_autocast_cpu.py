"""Autocast of the CPU: nested and disabled blocks, casts that are kept, custom functions, scalers;
within compiled steps, checkpoints, DDP and FSDP."""

from __future__ import annotations

import pytest

import disttrain as dt
import disttrain.distributed as dist
import disttrain.nn.functional as F
from disttrain import amp, nn
from disttrain.autograd import Function, checkpoint
from disttrain.distributed.fsdp import fully_shard

LOW, FULL = dt.bfloat16, dt.float32


def make():
    dt.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))


def on(dtype=LOW, **more):
    return dt.autocast("cpu", dtype, **more)


def test_blocks_are_nested_and_turned_off_inside():
    model, x = make(), dt.rand(3, 4)
    with on():
        assert model(x).dtype is LOW
        with on(dt.float16):
            assert model(x).dtype is dt.float16
        with on(enabled=False):
            assert model(x).dtype is FULL and not amp.is_autocast_enabled("cpu")
            with on():
                assert model(x).dtype is LOW
        assert (x.double() @ x.double().t()).dtype is dt.float64
    assert model(x).dtype is FULL and on()(model)(x).dtype is LOW


def test_casts_are_kept_by_the_outermost_block():
    weight, x = dt.rand(4, 4, requires_grad=True), dt.rand(4, 4)

    def cast():
        return F.linear(x, weight).grad_fn.next_functions[1][0]

    with on():
        first = cast()
        with on():
            assert cast() is first
        assert cast() is first
        amp.autocast_mode.clear_autocast_cache()
        assert cast() is not first
    with on(), on(cache_enabled=False):
        assert cast() is not cast()


def test_custom_functions_compute_as_they_say():
    seen = []

    class Product(Function):
        @staticmethod
        @amp.custom_fwd(device_type="cpu", cast_inputs=FULL)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            seen.append((a.dtype, amp.is_autocast_enabled("cpu")))
            return a @ b

        @staticmethod
        @amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen.append((g.dtype, amp.is_autocast_enabled("cpu")))
            return g @ b.t(), a.t() @ g

    a = dt.rand(2, 2, dtype=LOW, requires_grad=True)
    with on():
        out = Product.apply(a, dt.rand(2, 2))
    out.sum().backward()
    assert out.dtype is FULL and seen == [(FULL, False), (FULL, False)] and a.grad.dtype is LOW


def steps(model, run, count=3):
    opt = dt.optim.SGD(model.parameters(), lr=0.1)
    for i in range(count):
        dt.manual_seed(i)
        opt.zero_grad()
        run(dt.rand(3, 4), dt.rand(3, 2)).backward()
        opt.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("how", ["compiled", "checkpointed"])
def test_the_same_training_compiled_and_checkpointed(how):
    results = []
    for changed in (False, True):
        model = make()
        inner = model
        if changed and how == "checkpointed":
            inner = lambda x, m=model: checkpoint(m, x, use_reentrant=False)

        def loss(x, y, inner=inner):
            with on():
                return F.mse_loss(inner(x), y)

        results.append(steps(model, dt.compile(loss) if changed and how == "compiled" else loss))
    assert all(dt.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_scaler_on_the_cpu_goes_with_it():
    model, scaler = make(), amp.GradScaler("cpu", init_scale=4.0)
    opt = dt.optim.SGD(model.parameters(), lr=0.1)
    before = [p.detach().clone() for p in model.parameters()]
    for bad in (False, True):
        opt.zero_grad()
        with on(dt.float16):
            loss = F.mse_loss(model(dt.rand(3, 4)), dt.rand(3, 2))
        scaler.scale(loss * (float("inf") if bad else 1.0)).backward()
        scaler.step(opt)
        scaler.update()
        now = [p.detach().clone() for p in model.parameters()]
        same = all(dt.equal(a, b) for a, b in zip(before, now, strict=True))
        assert same is bad
        before = now
    assert scaler.get_scale() == 2.0


def wrapped(shard):
    dist.init_process_group("gloo")
    model = make()
    if shard:
        fully_shard(model)
        run = model
    else:
        run = nn.parallel.DistributedDataParallel(model)

    def loss(x, y):
        with on():
            out = run(x)
            assert out.dtype is LOW
            return F.mse_loss(out, y)

    params = steps(model, loss)
    return [(p.full_tensor() if shard else p).tolist() for p in params]


@pytest.mark.simulated
@pytest.mark.parametrize("shard", [False, True])
def test_ranks_train_as_one_does(shard):
    model = make()

    def loss(x, y):
        with on():
            return F.mse_loss(model(x), y)

    want = steps(model, loss)
    for ours in dist.simulate(wrapped, 2, args=(shard,)).results:
        for a, b in zip(ours, want, strict=True):
            assert dt.allclose(dt.tensor(a), b, atol=1e-2)
