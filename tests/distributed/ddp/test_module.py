"""DDP equals one process: on real ranks and on simulated ones."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.errors import AutogradError, CollectiveMismatch, LaunchError
from disttrain_launcher import launch
from support.rounding import Sums

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=32, depth=2 * 3 * 20)

STEPS, BATCH = 20, 32


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((BATCH, 20)), rng.integers(0, 5, BATCH)


def model() -> nn.Module:
    manual_seed(3)
    return nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 8), nn.ReLU(),
                         nn.Linear(8, 5)).double()  # fmt: skip


def train(m: nn.Module, x: np.ndarray, y: np.ndarray, micro: int = 1) -> list[np.ndarray]:
    """Twenty steps of AdamW, each over ``micro`` accumulated pieces."""
    optimizer = optim.AdamW(m.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        pieces = list(zip(np.split(x, micro), np.split(y, micro), strict=True))
        for i, (px, py) in enumerate(pieces):
            if micro > 1 and i < micro - 1 and isinstance(m, dist.DistributedDataParallel):
                with m.no_sync():
                    (F.cross_entropy(m(core.wrap(px)), core.wrap(py)) / micro).backward()
            else:
                (F.cross_entropy(m(core.wrap(px)), core.wrap(py)) / micro).backward()
        optimizer.step()
    return [p.detach().numpy().copy() for p in m.parameters()]


def ddp_rank(micro: int = 1, **options: object) -> list[np.ndarray]:
    """One rank's part of the training."""
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    x, y = data()
    m = model()
    if rank:  # rank 0's values must win
        for p in m.parameters():
            p.data.fill_(9.0)
    wrapped = dist.DistributedDataParallel(m, **options)
    out = train(wrapped, x[rank::size], y[rank::size], micro)
    dist.destroy_process_group()
    return out


def assert_equal_to_one_process(results: list[list[np.ndarray]], micro: int = 1) -> None:
    x, y = data()
    reference = train(model(), x, y)
    for ours, theirs in zip(results[0], reference, strict=True):
        SUMS.equal(ours, theirs)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("cap", [None, 0.0005], ids=["one bucket", "many buckets"])
def test_equals_one_process(ranks: int, cap: float | None) -> None:
    assert_equal_to_one_process(launch(ddp_rank_with_cap(cap), ranks))


def ddp_rank_with_cap(cap: float | None):
    return lambda: ddp_rank(bucket_cap_mb=cap)


@pytest.mark.parametrize("ranks", [2, 4])
def test_simulated_ranks_equal_real_ones(ranks: int) -> None:
    real = launch(ddp_rank, ranks)
    simulated = dist.simulate(ddp_rank, ranks, seed=5).results
    for a, b in zip(real, simulated, strict=True):
        for p, q in zip(a, b, strict=True):
            np.testing.assert_array_equal(p, q)


def test_bitwise_the_same_on_every_run() -> None:
    first, second = launch(ddp_rank, 4), launch(ddp_rank, 4)
    for a, b in zip(first[0], second[0], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("ranks", [1, 2])
def test_no_sync_accumulates(ranks: int) -> None:
    assert_equal_to_one_process(launch(lambda: ddp_rank(micro=2), ranks))


@pytest.mark.simulated
def test_gradients_are_views_of_the_buckets_and_survive_zero_grad() -> None:
    def body() -> tuple[bool, list[float]]:
        dist.init_process_group()
        m = dist.DistributedDataParallel(nn.Linear(4, 2).double())
        seen = []
        for set_to_none in (True, False, True):
            m(core.wrap(np.ones((3, 4)))).sum().backward()
            seen.append(float(m.module.bias.grad[0].item()))
            m.zero_grad(set_to_none=set_to_none)
        m(core.wrap(np.ones((3, 4)))).sum().backward()
        flat = m.reducer.flats[0]
        shared = all(np.shares_memory(p.grad.array, flat) for p in m.parameters())
        dist.destroy_process_group()
        return shared, seen

    for shared, seen in dist.simulate(body, 2).results:
        assert shared and seen == [3.0, 3.0, 3.0]


@pytest.mark.simulated
def test_no_sync_around_backward_only_is_refused() -> None:
    def body() -> None:
        dist.init_process_group()
        m = dist.DistributedDataParallel(nn.Linear(2, 2))
        out = m(core.wrap(np.ones((1, 2), np.float32))).sum()
        with m.no_sync():
            out.backward()

    with pytest.raises(LaunchError, match="put the forward inside the no_sync"):
        dist.simulate(body, 2)


class Partial(nn.Module):
    """Uses its second layer only when told so."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(3, 3).double(), nn.Linear(3, 3).double()

    def forward(self, x: core.Tensor, both: bool) -> core.Tensor:
        return self.idle(self.used(x)) if both else self.used(x)


@pytest.mark.simulated
def test_unused_parameters_are_named_with_the_rank() -> None:
    def body() -> str:
        dist.init_process_group()
        m = dist.DistributedDataParallel(Partial())
        with pytest.raises(AutogradError) as error:
            m(core.wrap(np.ones((1, 3))), both=False).sum().backward()
        return str(error.value)

    for rank, text in enumerate(dist.simulate(body, 2).results):
        assert "idle.weight" in text and "idle.bias" in text and f"rank {rank}" in text
        assert "find_unused_parameters=True" in text and "used.weight," not in text


@pytest.mark.simulated
def test_find_unused_parameters() -> None:
    """Used on rank 1 only: both ranks get half of its gradient. Used nowhere: None stays None."""

    def body() -> tuple:
        dist.init_process_group()
        m = dist.DistributedDataParallel(Partial(), find_unused_parameters=True)
        m(core.wrap(np.ones((1, 3))), both=False).sum().backward()
        untouched = m.module.idle.weight.grad is None
        m.zero_grad()
        m(core.wrap(np.ones((1, 3))), both=dist.get_rank() == 1).sum().backward()
        return untouched, m.module.idle.bias.grad.numpy().copy()

    for untouched, grad in dist.simulate(body, 2).results:
        assert untouched
        np.testing.assert_array_equal(grad, np.full(3, 0.5))


@pytest.mark.simulated
def test_buffers_follow_rank_0() -> None:
    def body() -> list[float]:
        dist.init_process_group()
        m = nn.BatchNorm1d(2).double()
        m.running_mean.fill_(float(dist.get_rank() + 1))
        wrapped = dist.DistributedDataParallel(m)
        wrapped.eval()
        wrapped(core.wrap(np.ones((2, 2)))).sum().backward()
        return m.running_mean.tolist()

    assert dist.simulate(body, 3).results == [[1.0, 1.0]] * 3


@pytest.mark.simulated
def test_different_models_are_refused_on_every_rank() -> None:
    def body() -> str:
        dist.init_process_group()
        with pytest.raises(CollectiveMismatch) as error:
            dist.DistributedDataParallel(nn.Linear(3 + dist.get_rank(), 2))
        return str(error.value)

    for text in dist.simulate(body, 2).results:
        assert "rank 0 has weight: float32[2, 3], rank 1 has weight: float32[2, 4]" in text


@pytest.mark.simulated
def test_a_model_without_parameters_is_refused() -> None:
    def body() -> None:
        dist.init_process_group()
        dist.DistributedDataParallel(nn.ReLU())

    with pytest.raises(LaunchError, match="nothing to synchronise") as error:
        dist.simulate(body, 1)
    assert isinstance(error.value.__cause__, AutogradError)


def test_one_rank_failing_in_backward_is_the_headline() -> None:
    def body() -> None:
        dist.init_process_group()
        m = dist.DistributedDataParallel(nn.Linear(2, 2))
        x = core.wrap(np.ones((1, 2), np.float32))
        for step in range(3):
            if step == 1 and dist.get_rank() == 1:
                raise ValueError("bad sample")
            m(x).sum().backward()

    with pytest.raises(LaunchError) as error:
        launch(body, 3)
    text = str(error.value)
    assert "rank 1 failed: ValueError: bad sample" in text
    assert "PeerFailed" in text.split("also rank", 1)[1]


@pytest.mark.simulated
@pytest.mark.parametrize("failing", [(0, 1), (1,)])
def test_going_on_after_a_backward_that_broke_off_is_refused(failing: tuple) -> None:
    """Else the gradients of one rank's step would be averaged with those of another's next one."""

    def body() -> None:
        dist.init_process_group()
        inner = model()
        m = dist.DistributedDataParallel(inner, bucket_cap_mb=1e-4)
        x = core.wrap(np.ones((1, 20)))
        m(x).sum().backward()
        hook = inner[0].weight.register_hook(lambda g: 1 / 0)
        if dist.get_rank() not in failing:
            hook.remove()
        try:
            m(x).sum().backward()
            m(x).sum().backward()
        except ZeroDivisionError:
            m(x)

    with pytest.raises(LaunchError, match="the last backward ended in the middle") as error:
        dist.simulate(body, 2)
    assert isinstance(error.value.__cause__, AutogradError)


class Alternating(nn.Module):
    """Uses another layer in each forward, and other layers on each rank."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1, 1) for _ in range(5)])
        self.next = first

    def forward(self, x):
        self.next += 1
        return self.layers[self.next - 1](x)


@pytest.mark.simulated
def test_what_no_sync_has_accumulated_counts_as_used() -> None:
    """Ranks use 0 and 2 without, then 1 and 3 with synchronisation: all four are averaged."""

    def body() -> list[list[float] | None]:
        dist.init_process_group()
        me = dist.get_rank()
        manual_seed(1)
        m = dist.DistributedDataParallel(Alternating(2 * me), find_unused_parameters=True)
        x = core.wrap(np.full((1, 1), 4.0, np.float32))
        with m.no_sync():
            m(x).sum().backward()
        m(x).sum().backward()
        grads = [p.grad for p in m.parameters()]
        dist.destroy_process_group()
        return [None if g is None else g.reshape(-1).tolist() for g in grads]

    for grads in dist.simulate(body, 2).results:
        assert grads == [[2.0], [0.5]] * 4 + [None, None]
