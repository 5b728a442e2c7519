"""Collectives as functions: what they give, and that backward goes through them."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
import disttrain.distributed._functional_collectives as funcol
from disttrain import core
from disttrain import distributed as dist
from disttrain.errors import ConfigError, ShapeError

pytestmark = pytest.mark.simulated


def on_ranks(body, size: int = 2) -> list:
    def inside():
        dist.init_process_group()
        out = body(dist.get_rank())
        dist.destroy_process_group()
        return out

    return dist.simulate(inside, size).results


def value(rank: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal((4, 6))


def parts(rank: int, dim: int, size: int = 2) -> list[np.ndarray]:
    return np.split(value(rank), size, axis=dim)


# Name -> (what a rank calls, what each rank gets from all values)
CASES = {
    "all_reduce": (
        lambda x: funcol.all_reduce(x, "sum", None), lambda xs: [sum(xs)] * len(xs)),
    "all_reduce max": (
        lambda x: funcol.all_reduce(x, "MAX", dist.group.WORLD),
        lambda xs: [np.maximum(*xs)] * len(xs)),
    "broadcast": (lambda x: funcol.broadcast(x, 1), lambda xs: [xs[1]] * len(xs)),
    "all_gather 0": (
        lambda x: funcol.all_gather_tensor(x, 0, None), lambda xs: [np.concatenate(xs)] * 2),
    "all_gather 1": (
        lambda x: funcol.all_gather_single_autograd(x, 1, None),
        lambda xs: [np.concatenate(xs, 1)] * 2),
    "reduce_scatter 0": (
        lambda x: funcol.reduce_scatter_tensor(x, "avg", 0, None),
        lambda xs: np.split(sum(xs) / 2, 2)),
    "reduce_scatter -1": (
        lambda x: funcol.reduce_scatter_tensor_autograd(x, "sum", -1, None),
        lambda xs: np.split(sum(xs), 2, axis=1)),
    "all_to_all": (
        lambda x: funcol.all_to_all_single(x, None, None, None),
        lambda xs: [np.concatenate([np.split(x, 2)[r] for x in xs]) for r in range(2)]),
    "permute": (lambda x: funcol.permute_tensor(x, [1, 0], None), lambda xs: xs[::-1]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name: str) -> None:
    call, wanted = CASES[name]

    def body(rank: int) -> tuple:
        x = core.wrap(value(rank)).requires_grad_()
        out = funcol.wait_tensor(call(x))
        (
            out * core.wrap(np.cos(np.arange(out.numel()) + rank).reshape(tuple(out.shape)))
        ).sum().backward()
        return out.detach().numpy(), x.grad.numpy()

    results = on_ranks(body)
    xs = [value(r) for r in range(2)]
    for got, each in zip(results, wanted(xs), strict=True):
        np.testing.assert_allclose(got[0], each, atol=1e-12)
    for rank in range(2):  # the derivative along one direction, by differences
        step = np.random.default_rng(9).standard_normal((4, 6)) * 1e-6

        def total(sign: float, rank=rank, step=step) -> float:
            moved = [x + sign * step if r == rank else x for r, x in enumerate(xs)]
            outs = wanted(moved)
            return sum(
                float((o * np.cos(np.arange(o.size) + r).reshape(o.shape)).sum())
                for r, o in enumerate(outs)
            )

        slope = (total(1) - total(-1)) / 2
        assert (results[rank][1] * step).sum() == pytest.approx(slope, rel=1e-5)


def test_several_at_once_and_uneven_parts() -> None:
    def body(rank: int) -> tuple:
        x, y = dt.full((2, 2), 1.0 + rank), dt.full((4,), 10.0 * rank)
        sums = funcol.all_reduce_coalesced([x, y], "sum", None)
        both = funcol.all_gather_into_tensor_coalesced([x, y], None)
        mine = funcol.reduce_scatter_tensor_coalesced([x, y], "sum", [1, 0], None)
        moved = funcol.all_to_all_single(y, [3, 3] if rank else [1, 1], [1, 3], None)
        shapes = [tuple(t.shape) for t in (*both, *mine)]
        return sums[0][0, 0].item(), sums[1][0].item(), shapes, moved.tolist()

    first, second = on_ranks(body)
    assert first[:2] == second[:2] == (3.0, 10.0)
    assert first[2] == [(4, 2), (8,), (2, 1), (2,)]
    assert first[3] == [0.0, 10.0] and second[3] == [0.0] * 3 + [10.0] * 3


def test_groups_in_every_spelling() -> None:
    def body(rank: int) -> list[float]:
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        pair = dist.new_group([0, 1])
        x = dt.tensor([1.0 + rank])
        spelled = [
            None,
            dist.group.WORLD,
            dist.group.WORLD.name,
            [0, 1, 2, 3],
            (mesh, 0),
            mesh["b"],
        ]
        if rank < 2:
            spelled += [pair, [0, 1], pair.name]
        return [funcol.all_reduce(x, "sum", g).item() for g in spelled]

    results = on_ranks(body, 4)
    for rank, got in enumerate(results):
        row, column = rank // 2, rank % 2
        assert got[:6] == [10.0] * 4 + [4.0 + 2 * column, 3.0 + 4 * row]
        assert got[6:] == ([3.0] * 3 if rank < 2 else [])


@pytest.mark.parametrize("call, error, text", [
    (lambda x: funcol.all_reduce(x, "mean", None), ConfigError, "one of sum, avg"),
    (lambda x: funcol.all_reduce(x, "sum", "nobody"), ConfigError, "group='nobody'"),
    (lambda x: funcol.reduce_scatter_tensor(x, "sum", 0, None), ShapeError,
     "multiple of group_size 2"),
    (lambda x: funcol.permute_tensor(x, [1, 1], None), ConfigError, "once"),
])  # fmt: skip
def test_wrong_arguments(call, error: type, text: str) -> None:
    def body(rank: int) -> str:
        try:
            call(dt.ones(3))
        except error as told:
            return str(told)
        return ""

    assert all(text in said for said in on_ranks(body))
