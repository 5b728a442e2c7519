"""What programs do around ``fully_shard``: two networks that train each other, optimizers inside
backward, penalties on gradients, freezing and thawing, compiled steps, weights that leave forward,
errors in the middle of a step. With shared memory and without."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from disttrain import compile as compiled
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.autograd import grad
from disttrain.comm.transports.shm import ShmTransport
from disttrain.core.random import manual_seed
from disttrain.distributed.fsdp import fully_shard
from disttrain.ops import arange, ones
from support.rounding import Sums

pytestmark = pytest.mark.simulated

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=12, depth=2 * 3 * 4)

ROWS = np.random.default_rng(0).standard_normal((12, 6))
Program = Callable[[Callable, np.ndarray], list]


def network() -> nn.Module:
    manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(),
                         nn.Linear(8, 4)).double()  # fmt: skip


def judge() -> nn.Module:
    manual_seed(5)
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 1)).double()


def shard(m: nn.Module) -> nn.Module:
    for child in m.children():
        fully_shard(child)
    return fully_shard(m)


def values(*modules: nn.Module) -> list[np.ndarray]:
    for m in modules:
        m.zero_grad()
    whole = [p for m in modules for p in m.parameters()]
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in whole]
    return [w.detach().numpy().copy() for w in whole]


def step(m: Any, x: np.ndarray) -> None:
    m(core.wrap(x)).square().mean().backward()


def plain(ready: Callable, x: np.ndarray, m: nn.Module | None = None) -> list:
    m = ready(network()) if m is None else m
    optimizer = optim.AdamW(m.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        step(m, x)
        optimizer.step()
    return values(m)


def adversaries(ready: Callable, x: np.ndarray) -> list:
    g, d, rows = ready(network()), ready(judge()), core.wrap(x)
    first, second = optim.SGD(g.parameters(), lr=0.1), optim.SGD(d.parameters(), lr=0.1)
    for _ in range(3):
        made = g(rows)
        second.zero_grad()
        (d(made.detach()).mean() - d(rows[:, :4]).mean()).backward()
        second.step()
        first.zero_grad()
        (-d(made).tanh().mean()).backward()
        first.step()
    return values(g, d)


def steps_in_backward(ready: Callable, x: np.ndarray) -> list:
    m = ready(network())
    for p in m.parameters():
        one = optim.AdamW([p], lr=1e-2)

        def run(p: Any, one: Any = one) -> None:
            one.step()
            one.zero_grad()

        p.register_post_accumulate_grad_hook(run)
    for _ in range(3):
        step(m, x)
    return values(m)


def penalty(ready: Callable, x: np.ndarray) -> list:
    m = ready(network())
    optimizer = optim.SGD(m.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        rows = core.wrap(x.copy()).requires_grad_()
        out = m(rows).square().sum(1)
        (slope,) = grad(out.sum(), rows, create_graph=True)
        (out + slope.square().sum(1)).mean().backward()
        optimizer.step()
    return values(m)


def freezing(ready: Callable, x: np.ndarray) -> list:
    m = ready(network())
    optimizer = optim.AdamW(m.parameters(), lr=1e-2)
    for i in range(4):
        for p in m[2].parameters():
            p.requires_grad_(i % 2 == 0)
        optimizer.zero_grad()
        step(m, x)
        optimizer.step()
    return values(m)


def hooked(ready: Callable, x: np.ndarray) -> list:
    m = ready(network())
    for p in m.parameters():
        p.register_hook(lambda g: g * 2.0)
    return plain(ready, x, m)


class Odd(nn.Module):
    """Parameters of three types, one of them no floating one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 4).double()
        self.number = nn.Parameter(arange(5), requires_grad=False)
        self.narrow = nn.Parameter(ones(3).half())

    def forward(self, x: core.Tensor) -> core.Tensor:
        return self.inner(x) * self.number[2] + self.narrow.sum().double()


def odd(ready: Callable, x: np.ndarray) -> list:
    manual_seed(1)
    return plain(ready, x, ready(Odd()))


class Gives(nn.Module):
    """Returns its weight, and nothing that was computed from it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 4).double()

    def forward(self, x: core.Tensor) -> core.Tensor:
        return self.inner.weight


def given_away(ready: Callable, x: np.ndarray) -> list:
    manual_seed(2)
    return plain(ready, x, ready(Gives()))


def broken(ready: Callable, x: np.ndarray) -> list:
    """Errors in forward and backward, caught by the program, which goes on."""
    m = ready(network())

    def fail(*args: Any) -> None:
        raise KeyError("on purpose")

    for register in (m[3].register_forward_hook, m[2].register_full_backward_pre_hook):
        handle = register(fail)
        with pytest.raises(KeyError):
            step(m, x)
        handle.remove()
        m.zero_grad()
    return plain(ready, x, m)


def loaded(ready: Callable, x: np.ndarray) -> list:
    """Forwards without backwards, and writes to the weights in between."""
    m = ready(network())
    for i in range(4):
        m(core.wrap(x))
        kept = {k: v.detach().clone() for k, v in m.state_dict().items()}
        with core.no_grad():
            for p in m.parameters():
                p.fill_(float(i))
        m.load_state_dict(kept)
    return plain(ready, x, m)


PROGRAMS: list[Program] = [
    plain, adversaries, steps_in_backward, penalty, freezing, hooked, odd, given_away, broken,
    loaded,
]  # fmt: skip


def on_ranks(program: Program, size: int, seed: int = 0) -> list:
    def rank() -> list:
        dist.init_process_group()
        result = program(shard, ROWS[dist.get_rank() :: size])
        dist.destroy_process_group()
        return result

    return dist.simulate(rank, size, seed=seed).results


@pytest.mark.parametrize("shares", [True, False], ids=["shared", "gathered"])
@pytest.mark.parametrize("program", PROGRAMS, ids=[p.__name__ for p in PROGRAMS])
def test_the_program_does_what_it_does_in_one_process(
    program: Program, shares: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(ShmTransport, "shares", shares)
    want = program(lambda m: m, ROWS)
    for got in on_ranks(program, 2):
        for a, b in zip(got, want, strict=True):
            SUMS.equal(a, b)


@pytest.mark.parametrize("seed", range(6))
def test_every_schedule_gives_the_same_bits(seed: int) -> None:
    first, other = on_ranks(adversaries, 3)[0], on_ranks(adversaries, 3, seed + 1)[1]
    for a, b in zip(first, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_compiled_step_runs_eagerly_and_right() -> None:
    want = plain(lambda m: m, ROWS)

    def program(ready: Callable, x: np.ndarray) -> list:
        m = ready(network())
        optimizer = optim.AdamW(m.parameters(), lr=1e-2)

        def run(rows: core.Tensor) -> core.Tensor:
            optimizer.zero_grad()
            loss = m(rows).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        fast = compiled(run)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(3):
                fast(core.wrap(x))
        return values(m)

    for got in on_ranks(program, 2):
        for a, b in zip(got, want, strict=True):
            SUMS.equal(a, b)


@pytest.mark.parametrize("shares", [True, False], ids=["shared", "gathered"])
def test_a_module_may_be_converted_after_it_was_sharded(shares: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(ShmTransport, "shares", shares)

    def program(ready: Callable, x: np.ndarray) -> list:
        m = ready(network())
        first = plain(ready, x, m)
        m.float()
        second = plain(ready, x.astype(np.float32), m)
        m.double()
        return [*first, *second, *plain(ready, x, m)]

    want = program(lambda m: m, ROWS)
    for got in on_ranks(program, 2):
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-4)
