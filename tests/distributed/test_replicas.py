"""Copies of a model on ranks that share a process: their rows, their sums, their beginning."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.distributed import replicas
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(("ranks", "count"), [(1, 3), (2, 5), (3, 7), (4, 2)])
def test_rows_are_taken_once(ranks, count):
    def rank_program():
        return replicas.rows(count)

    taken = on_ranks(rank_program, ranks)
    rows = [r for kept, share in taken if share for r in range(count)[kept]]
    assert rows == list(range(count))
    assert sum(share for _, share in taken) == pytest.approx(1)
    assert all(len(range(count)[kept]) >= 1 for kept, _ in taken)


def test_sums_by_shares_are_the_mean_over_all_rows():
    def rank_program():
        rank, _ = replicas.place()
        kept, share = replicas.own_rows(rank + 1)
        x = dt.full((2,), float(rank), requires_grad=True)
        broken = x.detach() / 0 if rank == 1 else x.detach()
        found, lacking, second = replicas.summed([x, None, x.detach().double()], share)
        return (
            kept,
            share,
            found.tolist(),
            second.dtype,
            found.requires_grad or lacking is not None,
            (replicas.summed([broken], 0.0 if rank == 1 else 1.0)[0].tolist()),
        )

    for rank, told in enumerate(on_ranks(rank_program, 2)):
        assert told[:2] == (slice(None), pytest.approx((rank + 1) / 3))
        assert told[2] == pytest.approx([2 / 3] * 2) and told[3] == dt.float64
        assert told[4] is False and told[5] == [0, 0]


def test_ranks_begin_alike():
    def rank_program():
        rank, _ = replicas.place()
        dt.manual_seed(rank)
        values = [dt.full((2,), float(rank)), dt.tensor(rank)]
        replicas.begin_alike(values)
        return values[0].tolist(), values[1].item(), dt.rand(2).tolist()

    first, other = on_ranks(rank_program, 2)
    assert first == other and first[:2] == ([0, 0], 0)


def test_a_process_alone_has_no_group():
    assert replicas.place() == (0, 1) and replicas.rows(4) == (slice(0, 4), 1.0)
    assert not dt.distributed.is_initialized()
