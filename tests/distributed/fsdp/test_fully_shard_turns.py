"""When shards may be written under ``fully_shard``: never while another rank reads the full weights
of which they are a part, whatever way a program writes; and what it writes is what is used next.
Steps that break off on one rank, parameters that are frozen in the middle."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from disttrain import context, core, nn, optim
from disttrain import distributed as dist
from disttrain.comm.transports.shm import ShmTransport
from disttrain.core.random import manual_seed
from disttrain.core.types.dtypes import float32
from disttrain.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from disttrain.errors import ConfigError
from support.rounding import Sums

pytestmark = pytest.mark.simulated

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=12, depth=2 * 3 * 4)

ROWS = np.random.default_rng(0).standard_normal((12, 6))


class Slow(nn.Module):
    """The identity, at which a rank is late in forward and in backward."""

    def __init__(self, who: int) -> None:
        super().__init__()
        self.who = who

    def forward(self, x: core.Tensor) -> core.Tensor:
        if dist.is_initialized() and dist.get_rank() == self.who:
            context.sleep(0.01)
            if x.requires_grad:
                x = x * 1.0
                x.register_hook(lambda g: context.sleep(0.01))
        return x


def network(late: int = 1) -> nn.Module:
    manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), Slow(late), nn.Linear(8, 8), nn.Tanh(), Slow(late),
                         nn.Linear(8, 4)).double()  # fmt: skip


def shard(m: nn.Module, **options: Any) -> Any:
    for child in m.children():
        if isinstance(child, nn.Linear):
            fully_shard(child, **options)
    return fully_shard(m, **options)


def on_ranks(body: Callable[[], Any], size: int = 2) -> list:
    def rank() -> Any:
        dist.init_process_group()
        result = body()
        dist.destroy_process_group()
        return result

    return dist.simulate(rank, size).results


def rows() -> core.Tensor:
    return core.wrap(ROWS[dist.get_rank() :: dist.get_world_size()])


def looked(m: nn.Module, x: core.Tensor) -> np.ndarray:
    with core.no_grad():
        return m(x).numpy()


def fill(params: list, value: float) -> None:
    with core.no_grad():
        for p in params:
            p.fill_(value)


VIEWS: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "to_local": lambda p: p.to_local().detach().zero_,
    "rows": lambda p: p.to_local().detach()[:2].zero_,
    "detach": lambda p: p.detach().zero_,
    "data": lambda p: p.data.zero_,
    "numpy": lambda p: functools.partial(p.to_local().detach().numpy().fill, 0.0),
    "parameter": lambda p: lambda: nn.init.zeros_(p),
}


@pytest.mark.parametrize("take", VIEWS.values(), ids=VIEWS)
def test_a_view_taken_before_forward_is_not_written_while_others_read(take: Callable) -> None:
    want = looked(network(), core.wrap(ROWS))

    def body() -> list[np.ndarray]:
        m = shard(network())
        writes = [take(p) for p in m.parameters()]
        found = looked(m, rows())
        for write in writes:
            write()
        return [found, looked(m, rows())]

    for rank, (first, second) in enumerate(on_ranks(body)):
        SUMS.equal(first, want[rank::2])
        if take is not VIEWS["rows"]:
            assert not second.any()


def test_weights_of_frozen_units_are_not_written_while_others_go_backward() -> None:
    def grads(m: nn.Module, x: core.Tensor) -> np.ndarray:
        x = (x * 1.0).detach().requires_grad_()
        m(x).square().sum().backward()
        return x.grad.numpy()

    def frozen() -> nn.Module:
        m = network()
        for p in m[0].parameters():
            p.requires_grad_(False)
        m.insert(1, Slow(1))
        return m

    want = grads(frozen(), core.wrap(ROWS))

    def body() -> np.ndarray:
        m = shard(frozen())
        found = grads(m, rows())
        m[0].reshard()
        fill(list(m[0].parameters()), 0.0)
        return found

    for rank, got in enumerate(on_ranks(body)):
        SUMS.equal(got, want[rank::2])


@pytest.mark.parametrize("where", ["backward", "at the end"])
def test_a_step_that_breaks_off_on_one_rank_ends_its_turn(where: str) -> None:
    def body() -> np.ndarray:
        m = shard(network())

        def fail(*args: Any) -> None:
            raise KeyError("on purpose")

        if where == "backward":
            m.set_requires_gradient_sync(False)
        out = m(rows())
        if dist.get_rank() == 0:
            watched = out if where == "backward" else m[0].weight
            handle = watched.register_hook(fail)
            with pytest.raises(KeyError):
                out.sum().backward()
            handle.remove()
        else:
            out.sum().backward()
        m.reset_iter_state()
        m.set_requires_gradient_sync(True)
        m.zero_grad()
        for k in range(3):
            fill(list(m.parameters()), 0.1 * k)
            found = looked(m, rows())
        m(rows()).sum().backward()
        return found

    plain = network()
    fill(list(plain.parameters()), 0.2)
    want = looked(plain, core.wrap(ROWS))
    for rank, got in enumerate(on_ranks(body)):
        SUMS.equal(got, want[rank::2])


def test_weights_that_are_held_are_given_up_by_a_reset() -> None:
    def body() -> float:
        m = shard(network())
        m(rows())
        m.unshard()
        m.reset_iter_state()
        looked(m, rows())
        fill(list(m.parameters()), 0.0)
        return float(np.abs(looked(m, rows())).sum())

    assert on_ranks(body) == [0.0, 0.0]


@pytest.mark.parametrize("shares", [True, False], ids=["shared", "gathered"])
@pytest.mark.parametrize("policy", [None, MixedPrecisionPolicy(param_dtype=float32)])
def test_what_is_written_between_forwards_is_used(
    policy: Any, shares: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(ShmTransport, "shares", shares)

    def body() -> list[float]:
        m = shard(network(), mp_policy=policy, reshard_after_forward=False)
        m.set_reshard_after_backward(False)
        found = [np.abs(looked(m, rows())).sum()]
        fill(list(m.parameters()), 0.0)
        found.append(np.abs(looked(m, rows())).sum())
        fill(list(m.parameters()), 0.1)
        m[0].set_modules_to_forward_prefetch([m[2], m[5]])

        def fail(*args: Any) -> None:
            raise KeyError("on purpose")

        handle = m[0].register_forward_hook(fail)
        with pytest.raises(KeyError):
            m(rows())
        handle.remove()
        fill(list(m.parameters()), 0.0)
        return [float(f) for f in [*found, np.abs(looked(m, rows())).sum()]]

    for first, second, third in on_ranks(body):
        assert first > 0.1 and second == third == 0.0


def test_a_full_weight_is_not_given_other_memory() -> None:
    def body() -> None:
        m = shard(network())
        m[0].unshard()
        with pytest.raises(ConfigError, match=r"parameter.data = .*call module.reshard\(\) first"):
            m[0].weight.data = m[0].weight.data * 2.0
        m[0].reshard()

    on_ranks(body)


@pytest.mark.parametrize("shares", [True, False], ids=["shared", "gathered"])
def test_weights_on_the_meta_device_are_asked_for(shares: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(ShmTransport, "shares", shares)

    def body() -> None:
        m = nn.Linear(6, 4, device="meta")
        fully_shard(m)
        with pytest.raises(RuntimeError, match=r"'weight' is on the meta device.*materialized"):
            m(core.wrap(ROWS.astype(np.float32)))

    on_ranks(body)


def trained(m: nn.Module, x: core.Tensor, freeze: Callable[[nn.Module, int], None]) -> list:
    optimizer = optim.SGD(m.parameters(), lr=0.1)
    for k in range(4):
        optimizer.zero_grad()
        for j in range(2):
            if hasattr(m, "set_requires_gradient_sync"):
                m.set_requires_gradient_sync(j == 1)
            freeze(m, 2 * k + j)
            m(x).square().mean().backward()
        optimizer.step()
    m.zero_grad()
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in m.parameters()]
    return [w.detach().numpy() for w in whole]


def between_steps(m: nn.Module, k: int) -> None:
    m[0].weight.requires_grad_(k // 2 % 2 == 0)
    m[2].bias.requires_grad_(k // 2 % 2 == 1)


def while_gradients_wait(m: nn.Module, k: int) -> None:
    m[2].weight.requires_grad_(k % 2 == 0)


@pytest.mark.parametrize("freeze", [between_steps, while_gradients_wait])
def test_a_part_of_a_unit_may_be_frozen(freeze: Callable) -> None:
    if freeze is between_steps:
        want = trained(network(), core.wrap(ROWS), freeze)
    for units in (shard, fully_shard):
        results = on_ranks(lambda units=units: trained(units(network()), rows(), freeze))
        for got in results:
            for a, b in zip(got, want if freeze is between_steps else results[0], strict=True):
                SUMS.equal(a, b)


def two_ranks_give_the_mean_of_both(kind: type[nn.Module], train: Callable) -> None:
    """``train(module, rows, rank)`` leaves the mean of both ranks' gradients."""

    def made() -> nn.Module:
        manual_seed(2)
        return kind().double()

    plain = made()
    for rank in range(2):
        train(plain, core.wrap(ROWS[rank::2]), rank)
    want = [p.grad.numpy() / 2 for p in plain.parameters()]

    def body() -> list[np.ndarray]:
        m = made()
        for child in m.children():
            fully_shard(child)
        fully_shard(m)
        train(m, rows(), dist.get_rank())
        return [p.grad.full_tensor().numpy() for p in m.parameters()]

    for got in on_ranks(body):
        for a, b in zip(got, want, strict=True):
            SUMS.equal(a, b)


class Parts(nn.Module):
    """Which of its layers count depends on the rank."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = [nn.Linear(6, 6) for _ in range(3)]

    def forward(self, x: core.Tensor, rank: int) -> core.Tensor:
        h = self.first(x)
        a, b = self.second(h), self.third(h)
        return (a if rank == 0 else h).sin() + (b if rank == 1 else x)


@pytest.mark.parametrize("shares", [True, False], ids=["shared", "gathered"])
def test_a_retained_graph_is_walked_again_where_ranks_use_other_parts(
    shares: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(ShmTransport, "shares", shares)

    def train(m: nn.Module, x: core.Tensor, rank: int) -> None:
        out = m(x, rank)
        out.square().mean().backward(retain_graph=True)
        out.sin().mean().backward()

    two_ranks_give_the_mean_of_both(Parts, train)


class Cut(nn.Module):
    """Whether the loss depends on its first layer is said at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: core.Tensor, cut: bool) -> core.Tensor:
        h = self.first(x)
        return self.second(h.detach() if cut else h)


@pytest.mark.parametrize("shares", [True, False], ids=["shared", "gathered"])
def test_one_backward_through_two_forwards_of_which_a_rank_needs_a_part(
    shares: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(ShmTransport, "shares", shares)

    def train(m: nn.Module, x: core.Tensor, rank: int) -> None:
        (m(x, False).sin().mean() + m(x * 2.0, rank == 1).cos().mean()).backward()

    two_ranks_give_the_mean_of_both(Cut, train)


def test_gradients_go_to_the_memory_that_is_reduced_when_it_has_grown() -> None:
    want = network()
    want(core.wrap(ROWS)).sum().backward()

    def body() -> None:
        m = shard(network())
        kept = []
        for _ in range(40):
            m.zero_grad()
            m(core.wrap(ROWS)).sum().backward()
            for p, q in zip(m.parameters(), want.parameters(), strict=True):
                SUMS.equal(p.grad.full_tensor().numpy(), q.grad.numpy())
            pool = fully_shard.state(m).unit.pool  # as when a larger unit is trained, too
            kept.append(list(pool._free))
            pool.reserve(pool.capacity + 4096)

    on_ranks(body, 1)
    on_ranks(body)
