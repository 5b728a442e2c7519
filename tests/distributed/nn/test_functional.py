"""Collectives that backward goes through equal one process, to second order."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
import disttrain.distributed.nn.functional as dnn
from disttrain import distributed as dist
from disttrain.distributed import ReduceOp
from disttrain_launcher import launch
from support.cases.collective_cases import CASES, inputs


def loss_of(outs: list[dt.Tensor], rank: int) -> dt.Tensor:
    terms = [((o * (1.0 + i + rank)).sin() * o).sum() for i, o in enumerate(outs)]
    return sum(terms[1:], terms[0])


def twice(loss: dt.Tensor, xs: list[dt.Tensor]) -> list[tuple]:
    """First and second derivatives (of the sum of squares of the first)."""
    first = dt.autograd.grad(loss, xs, create_graph=True)
    squares = [(g * g).sum() for g in first]
    sum(squares[1:], squares[0]).backward()
    return [(g.detach().numpy(), x.grad.numpy()) for g, x in zip(first, xs, strict=True)]


def on_rank(name: str) -> tuple:
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    x = inputs(rank, size).requires_grad_()
    outs = CASES[name][0](x * x, size)
    result = twice(loss_of(outs, rank), [x])[0]
    dist.destroy_process_group()
    return ([o.detach().numpy() for o in outs], *result)


def in_one(name: str, size: int) -> list[tuple]:
    xs = [inputs(r, size).requires_grad_() for r in range(size)]
    outs = CASES[name][1]([x * x for x in xs])
    losses = [loss_of(o, r) + (xs[r] ** 3 * 0).sum() for r, o in enumerate(outs)]
    results = twice(sum(losses[1:], losses[0]), xs)
    return [([t.detach().numpy() for t in o], *d) for o, d in zip(outs, results, strict=True)]


def assert_same(ranks: list[tuple], alone: list[tuple]) -> None:
    for (outs, first, second), (outs1, first1, second1) in zip(ranks, alone, strict=True):
        for a, b in zip(outs, outs1, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
        np.testing.assert_allclose(first, first1, rtol=1e-12, atol=1e-10)
        np.testing.assert_allclose(second, second1, rtol=1e-12, atol=1e-9)


@pytest.mark.simulated
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CASES)
def test_equals_one_process_to_second_order(name: str, size: int) -> None:
    assert_same(dist.simulate(on_rank, size, args=(name,)).results, in_one(name, size))


@pytest.mark.parametrize("name", ["all_reduce-sum", "all_to_all_single uneven", "ring"])
def test_on_real_processes(name: str) -> None:
    assert_same(launch(lambda: on_rank(name), 2), in_one(name, 2))


@pytest.mark.simulated
def test_forward_mode_pushes_tangents_through() -> None:
    def body() -> tuple:
        dist.init_process_group()
        x, t = inputs(dist.get_rank(), 2), inputs(dist.get_rank() + 7, 2)
        out = dt.func.jvp(lambda v: dnn.all_reduce(v * v), (x,), (t,))
        dist.destroy_process_group()
        return tuple(o.numpy() for o in out)

    xs, ts = [inputs(r, 2).numpy() for r in range(2)], [inputs(r + 7, 2).numpy() for r in range(2)]
    for value, tangent in dist.simulate(body, 2).results:
        np.testing.assert_allclose(value, sum(x * x for x in xs), atol=1e-12)
        pushed = sum(2 * x * t for x, t in zip(xs, ts, strict=True))
        np.testing.assert_allclose(tangent, pushed, atol=1e-12)


@pytest.mark.simulated
def test_outputs_are_filled_and_integers_pass() -> None:
    def body() -> tuple:
        dist.init_process_group()
        rank = dist.get_rank()
        out = dt.zeros(4)
        result = dnn.all_to_all_single(out, dt.arange(4, dtype=dt.float32) + 10 * rank)
        whole = dnn.all_reduce(dt.tensor([rank + 1, 5]), op=ReduceOp.MAX)
        bits = dnn.all_reduce(dt.tensor([1 << rank]), op=ReduceOp.BOR)
        small = dnn.all_gather(dt.ones(2, dtype=dt.bfloat16) * rank)
        dist.destroy_process_group()
        return out.tolist(), result.tolist(), whole.tolist(), bits.item(), small[1].tolist()

    first, second = dist.simulate(body, 2).results
    assert first == ([0.0, 1.0, 10.0, 11.0],) * 2 + ([2, 5], 3, [1.0, 1.0])
    assert second == ([2.0, 3.0, 12.0, 13.0],) * 2 + ([2, 5], 3, [1.0, 1.0])


@pytest.mark.simulated
def test_roots_are_global_ranks_in_a_smaller_group() -> None:
    def body() -> float:
        dist.init_process_group()
        rank = dist.get_rank()
        group = dist.new_group([1, 2])
        out = 0.0
        if rank:
            x = dt.tensor([float(rank)]).requires_grad_()
            (dnn.broadcast(x, 2, group=group) * rank).backward()
            out = x.grad.item()
        dist.destroy_process_group()
        return out

    assert dist.simulate(body, 3).results == [0.0, 0.0, 3.0]


@pytest.mark.simulated
@pytest.mark.parametrize("call, text", [
    (lambda: dnn.all_reduce([1.0]), "list was given"),
    (lambda: dnn.scatter([dt.ones(1)], 0), "2 tensors"),
    (lambda: dnn.recv(dt.ones(1), 0, after=dt.ones(3)), "what send returned"),
    (lambda: dnn.all_reduce(dt.ones(3, device="meta")), "meta device"),
])  # fmt: skip
def test_wrong_arguments_say_what_is_needed(call, text: str) -> None:
    def body() -> str:
        dist.init_process_group()
        try:
            call()
        except Exception as error:
            said = str(error)
        dist.destroy_process_group()
        return said

    for said in dist.simulate(body, 2).results:
        assert text in said
