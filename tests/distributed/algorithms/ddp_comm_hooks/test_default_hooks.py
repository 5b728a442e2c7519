"""Communication hooks of DDP: what they do to gradients, and what they compose to."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.distributed.algorithms.ddp_comm_hooks import (
    DDPCommHookType,
    register_ddp_comm_hook,
)
from disttrain.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import (
    hook_with_zero_step,
    hook_with_zero_step_interleaved,
)
from disttrain.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from disttrain.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_hook,
    bf16_compress_wrapper,
    fp16_compress_hook,
    fp16_compress_wrapper,
)
from disttrain.distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks import (
    _OptimizerHookState,
)
from disttrain.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState,
    powerSGD_hook,
)
from disttrain.distributed.algorithms.ddp_comm_hooks.quantization_hooks import (
    quantization_perchannel_hook,
    quantization_pertensor_hook,
)
from disttrain.distributed.optim import ZeroRedundancyOptimizer, as_functional_optim
from disttrain.errors import ConfigError
from disttrain_launcher import launch

STEPS = 4


def model() -> nn.Module:
    dt.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 8), nn.Linear(8, 3))


def batch(rank: int, step: int) -> dt.Tensor:
    rng = np.random.default_rng([rank, step])
    return core.wrap(rng.standard_normal((4, 20)).astype(np.float32))


def arrays(tensors) -> list[np.ndarray]:
    return [t.detach().numpy().copy() for t in tensors]


def gradients(hook=None, state=None, cap: float | None = 0.0005, steps: int = STEPS) -> list:
    """The gradients of the last of some iterations, between which the parameters do not move."""
    dist.init_process_group()
    m = dist.DistributedDataParallel(model(), bucket_cap_mb=cap)
    if hook is not None:
        m.register_comm_hook(state() if callable(state) else state, hook)
    for step in range(steps):
        m.zero_grad()
        (m(batch(dist.get_rank(), step)) ** 2).sum().backward()
    out = arrays(p.grad for p in m.parameters())
    dist.destroy_process_group()
    return out


def alone(rank: int, step: int = STEPS - 1) -> list[np.ndarray]:
    m = model()
    (m(batch(rank, step)) ** 2).sum().backward()
    return arrays(p.grad for p in m.parameters())


def assert_close(a: list, b: list, within: float = 0.0) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=within * np.abs(y).max())


@pytest.mark.simulated
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_allreduce_is_what_ddp_does(size: int) -> None:
    plain = dist.simulate(gradients, size).results
    hooked = dist.simulate(gradients, size, args=(allreduce_hook,)).results
    for a, b in zip(hooked, plain, strict=True):
        assert_close(a, b)


@pytest.mark.simulated
@pytest.mark.parametrize("hook, within", [
    (fp16_compress_hook, 2e-3),
    (bf16_compress_hook, 2e-2),
    (fp16_compress_wrapper(allreduce_hook), 2e-3),
    (bf16_compress_wrapper(allreduce_hook), 2e-2),
])  # fmt: skip
@pytest.mark.parametrize("size", [1, 2, 3])
def test_compressed_gradients_are_near_the_average(hook, within: float, size: int) -> None:
    plain = dist.simulate(gradients, size).results
    everyone = dist.simulate(gradients, size, args=(hook,)).results
    for ours in everyone:
        assert_close(ours, plain[0], within)
        assert_close(ours, everyone[0])
    assert any((a != b).any() for a, b in zip(everyone[0], plain[0], strict=True))


@pytest.mark.simulated
@pytest.mark.parametrize("hook", [quantization_pertensor_hook, quantization_perchannel_hook])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_8_bit_gradients_are_off_by_half_a_level_at_most(hook, size: int) -> None:
    plain = dist.simulate(gradients, size).results
    everyone = dist.simulate(gradients, size, args=(hook,)).results
    largest = max(np.abs(g).max() for r in range(size) for g in alone(r))
    level = 2 * largest / 255
    for ours in everyone:
        assert_close(ours, everyone[0])
        for a, b in zip(ours, plain[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=level / 2 * 1.001)


def test_on_real_processes() -> None:
    def body() -> tuple:
        """Every hook in turn, the last one with an optimizer behind it."""
        return gradients(), gradients(bf16_compress_hook), power_and_zero()

    simulated = dist.simulate(power_and_zero, 2).results[0]
    for plain, cast, trained in launch(body, 2):
        assert_close(cast, plain, 2e-2)
        assert_close(trained, simulated)


@pytest.mark.simulated
def test_noop_leaves_every_rank_its_own() -> None:
    for rank, ours in enumerate(dist.simulate(gradients, 2, args=(noop_hook,)).results):
        assert_close(ours, alone(rank))


@pytest.mark.simulated
def test_a_wrapper_equals_the_hook_of_its_type() -> None:
    for pair in (
        (fp16_compress_hook, fp16_compress_wrapper(allreduce_hook)),
        (bf16_compress_hook, bf16_compress_wrapper(allreduce_hook)),
    ):
        first, second = (dist.simulate(gradients, 2, args=(h,)).results for h in pair)
        assert_close(first[0], second[0])


@pytest.mark.simulated
def test_a_wrapper_shows_its_hook_narrow_gradients() -> None:
    seen: set = set()

    def looking(state, bucket):
        views = bucket.gradients()
        same = views[0].shape == bucket.parameters()[0].shape
        seen.add((str(bucket.buffer().dtype), str(views[0].dtype), same))
        return allreduce_hook(state, bucket)

    dist.simulate(gradients, 2, args=(fp16_compress_wrapper(looking),))
    assert seen == {("disttrain.float16", "disttrain.float16", True)}


@pytest.mark.simulated
def test_large_values_do_not_overflow_on_the_way() -> None:
    """Two gradients of 40000 have a float16 average, though no float16 sum."""

    def body() -> float:
        dist.init_process_group()
        m = nn.Linear(1, 1, bias=False)
        m.weight.data.fill_(1.0)
        m = dist.DistributedDataParallel(m)
        m.register_comm_hook(None, fp16_compress_hook)
        (m(dt.ones(1, 1)) * 40000.0).sum().backward()
        out = m.module.weight.grad.item()
        dist.destroy_process_group()
        return out

    assert dist.simulate(body, 2).results == [40000.0, 40000.0]


@pytest.mark.simulated
def test_every_kind_can_be_registered_by_name() -> None:
    def body() -> list[str]:
        dist.init_process_group()
        done = []
        for kind in DDPCommHookType:
            m = dist.DistributedDataParallel(model())
            register_ddp_comm_hook(kind, m)
            for step in range(2):
                (m(batch(dist.get_rank(), step)) ** 2).sum().backward()
            done.append(kind.name)
        dist.destroy_process_group()
        return done

    assert dist.simulate(body, 2).results[0] == [
        "ALLREDUCE", "FP16_COMPRESS", "BF16_COMPRESS", "QUANTIZE_PER_TENSOR",
        "QUANTIZE_PER_CHANNEL", "POWER_SGD", "POWER_SGD_RANK2", "BATCHED_POWER_SGD",
        "BATCHED_POWER_SGD_RANK2", "NOOP",
    ]  # fmt: skip


# --- optimizers behind hooks ---------------------------------------------------------------------


def trained(make, size: int) -> list:
    """Parameters after some steps, on every rank. ``make(ddp)`` registers; it gives what to call
    after each backward."""

    def body() -> list:
        dist.init_process_group()
        m = dist.DistributedDataParallel(model(), bucket_cap_mb=0.0005)
        after = make(m)
        for step in range(STEPS):
            m.zero_grad()
            (m(batch(dist.get_rank(), step)) ** 2).mean().backward()
            after()
        out = arrays(m.parameters())
        dist.destroy_process_group()
        return out

    return dist.simulate(body, size).results


def plain_adam(m):
    return dt.optim.Adam(m.parameters(), lr=0.05).step


def nothing() -> None:
    pass


@pytest.mark.simulated
def test_what_cannot_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="step_param"):
        _OptimizerHookState(object())
    with pytest.raises(ConfigError, match="functional counterpart"):
        as_functional_optim(int)

    def body() -> list[str]:
        dist.init_process_group()
        m, said = dist.DistributedDataParallel(model()), []
        for given in (
            {"params": m.parameters()},
            {"params": list(m.parameters())[1:], "overlap_with_ddp": True},
        ):
            zero = ZeroRedundancyOptimizer(optimizer_class=dt.optim.SGD, lr=0.1, **given)
            try:
                hook_with_zero_step(allreduce_hook, m, zero)
            except ConfigError as error:
                said.append(str(error))
        dist.destroy_process_group()
        return said

    (said,) = dist.simulate(body, 1).results
    assert "overlap_with_ddp=True" in said[0] and "module.0.weight" in said[1]


@pytest.mark.simulated
def test_powersgd_inside_a_half_type_wrapper() -> None:
    def state() -> PowerSGDState:
        return PowerSGDState(None, 4, start_powerSGD_iter=2, min_compression_rate=0.1)

    plain = dist.simulate(gradients, 2).results
    hook = fp16_compress_wrapper(powerSGD_hook)
    everyone = dist.simulate(gradients, 2, args=(hook, state)).results
    assert_close(everyone[0], everyone[1])
    assert all(np.isfinite(g).all() for g in everyone[0])
    assert_close(everyone[0][-1:], plain[0][-1:], 5e-3)


# --- together with what DDP offers ---------------------------------------------------------------


class Branching(nn.Module):
    """Leaves a layer out on some ranks in some steps."""

    def __init__(self) -> None:
        super().__init__()
        dt.manual_seed(0)
        self.first, self.extra, self.last = nn.Linear(20, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x, with_extra: bool):
        h = self.first(x).tanh()
        return self.last(self.extra(h) if with_extra else h)


def with_settings(hook, accumulate: int, uneven: bool, **settings) -> list:
    """Parameters after some steps of accumulated gradients, with as many steps on every rank or
    not."""
    dist.init_process_group()
    rank, unused = dist.get_rank(), settings.get("find_unused_parameters", False)
    m = dist.DistributedDataParallel(Branching(), bucket_cap_mb=0.0005, **settings)
    if hook is not None:
        m.register_comm_hook(None, hook)
    o = dt.optim.SGD(m.parameters(), lr=0.05, momentum=0.9)
    with m.join(enable=uneven):
        for step in range(4 + (rank if uneven else 0)):
            o.zero_grad()
            for part in range(accumulate):
                last = part == accumulate - 1
                with contextlib.nullcontext() if last else m.no_sync():
                    y = m(
                        batch(rank, step * accumulate + part), not unused or (rank + step) % 3 > 0
                    )
                    y.pow(2).mean().backward()
            o.step()
    out = arrays(m.parameters())
    dist.destroy_process_group()
    return out


@pytest.mark.simulated
@pytest.mark.parametrize("accumulate, uneven, settings", [
    (1, False, {"find_unused_parameters": True}),
    (3, False, {}),
    (1, False, {"static_graph": True}),
    (1, True, {}),
    (2, False, {"gradient_as_bucket_view": True}),
])  # fmt: skip
def test_a_hook_that_averages_changes_nothing(accumulate, uneven, settings) -> None:
    def run(hook) -> list:
        return dist.simulate(
            lambda: with_settings(hook, accumulate, uneven, **settings), 3, seed=accumulate
        ).results

    for a, b in zip(run(allreduce_hook), run(None), strict=True):
        assert_close(a, b, 1e-6)


def power_and_zero() -> list:
    """SyncBatchNorm in backward, a hook that communicates twice, an optimizer that sends."""
    dist.init_process_group()
    dt.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(20, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16), nn.BatchNorm1d(16),
        nn.Linear(16, 3),
    )  # fmt: skip
    m = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    m = dist.DistributedDataParallel(m, bucket_cap_mb=0.0005)
    state = PowerSGDState(None, 1, start_powerSGD_iter=2, min_compression_rate=0.5)
    zero = ZeroRedundancyOptimizer(m.parameters(), dt.optim.Adam, overlap_with_ddp=True, lr=0.01)
    m.register_comm_hook(state, hook_with_zero_step_interleaved(powerSGD_hook, m, zero))
    for step in range(5):
        m.zero_grad()
        (m(batch(dist.get_rank(), step)) ** 2).mean().backward()
    out = arrays(m.parameters())
    dist.destroy_process_group()
    return out


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(6))
def test_collectives_in_the_model_and_in_hooks_come_in_one_order(seed: int) -> None:
    first, *others = dist.simulate(power_and_zero, 3, seed=seed).results
    for other in others:
        assert_close(other, first)
