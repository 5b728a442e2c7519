"""Gradients that touch few rows travel as rows, and are what they would be otherwise."""

from __future__ import annotations

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.distributed.ddp.reducer import row_sums
from disttrain.distributed.ddp.reducer.row_sums import is_less, touched_rows
from disttrain_launcher import launch

DDP = dist.DistributedDataParallel
V, D = 40, 6


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_touched_rows(dtype: type, width: int) -> None:
    grad = np.zeros((9, width), dtype)
    grad[2, 0], grad[7, -1], grad[8, 0] = 1, np.nan, -1e-3
    assert touched_rows(grad).tolist() == [2, 7, 8]


def test_when_rows_are_less() -> None:
    assert is_less([10, 10], 40) and not is_less([10, 11], 40) and is_less([0, 0], 1)


def tokens(rank: int, step: int, many: bool) -> np.ndarray:
    rng = np.random.default_rng(10 * step + rank)
    return rng.integers(0, V, (8, 9) if many else (2, 3))


def body(steps: str, options: dict) -> tuple:
    """Gradients of each step, "f" with few rows and "m" with many; rows sent."""
    dist.init_process_group()
    manual_seed(0)
    m = DDP(nn.Sequential(nn.Embedding(V, D), nn.Linear(D, 2)).double(), **options)
    out, sent = [], []
    for step, kind in enumerate(steps):
        m.zero_grad()
        m(core.wrap(tokens(dist.get_rank(), step, kind == "m"))).pow(2).sum().backward()
        out.append([p.grad.numpy().copy() for p in m.parameters()])
        sent.append(sum(r.sent_rows for r in m.reducer.by_rows.values()))
    dist.destroy_process_group()
    return out, sent


OPTIONS = [{}, {"bucket_cap_mb": 1e-4}, {"find_unused_parameters": True}, {"static_graph": True}]


@pytest.mark.simulated
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equal_to_the_dense_sum(monkeypatch, options: dict) -> None:
    dense = dist.simulate(lambda: body("ffmff", options), 3).results
    monkeypatch.setattr(row_sums, "MIN_BYTES", 0)
    rows = dist.simulate(lambda: body("ffmff", options), 3).results
    assert [sent for _, sent in dense] == [[0] * 5] * 3
    for (got, sent), (want, _) in zip(rows, dense, strict=True):
        grew = [b > a for a, b in pairwise([0, *sent])]
        assert grew == [True, True, False, False, True]  # after many rows, a step without counting
        for a, b in zip(got, want, strict=True):
            for p, q in zip(a, b, strict=True):
                np.testing.assert_array_equal(p, q)


def test_on_real_ranks_and_for_ranks_without_input(monkeypatch) -> None:
    monkeypatch.setattr(row_sums, "MIN_BYTES", 0)

    def uneven() -> list:
        dist.init_process_group()
        manual_seed(0)
        m = DDP(nn.Embedding(V, D).double())
        with m.join():
            for step in range(1 + dist.get_rank()):
                m.zero_grad()
                m(core.wrap(tokens(dist.get_rank(), step, False))).sum().backward()
        grad = m.module.weight.grad.numpy().copy()
        dist.destroy_process_group()
        return grad

    want = np.zeros((V, D))
    np.add.at(want, tokens(1, 1, False).reshape(-1), 0.5)
    np.testing.assert_array_equal(launch(uneven, 2)[1], want)


@pytest.mark.simulated
def test_shared_with_a_head_it_stays_dense(monkeypatch) -> None:
    monkeypatch.setattr(row_sums, "MIN_BYTES", 0)

    def alone() -> int:
        dist.init_process_group()
        inner = nn.Sequential(nn.Embedding(V, D), nn.Linear(D, V, bias=False))
        inner[1].weight = inner[0].weight
        return len(DDP(inner).reducer.by_rows)

    assert dist.simulate(alone, 1).results == [0]
