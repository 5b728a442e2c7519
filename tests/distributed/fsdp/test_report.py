"""What units keep in memory: bytes counted by hand, sums, and the table."""

from __future__ import annotations

import pytest

from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.fsdp import fully_shard, memory_report
from disttrain.distributed.fsdp.report import MemoryReport, UnitMemory
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def unit(name, shards, gradients, full, reduced):
    return UnitMemory(name, 1000, shards, gradients, full, reduced, "sharded")


def test_at_most_one_full_unit_and_one_block_are_there_at_once():
    report = MemoryReport((unit("", 10, 10, 500, 40), unit("a", 20, 0, 300, 90)))
    assert (report.shards, report.gradients) == (30, 10)
    assert report.peak == 30 + 10 + 500 + 90
    empty = MemoryReport(())
    assert (empty.shards, empty.gradients, empty.peak) == (0, 0, 0)


def test_the_table_has_a_row_for_each_unit_and_their_sums():
    head, root, inner, total = str(
        MemoryReport((unit("", 2048, 1024, 0, 0), unit("layer.0", 1 << 20, 0, 4096, 0)))
    ).splitlines()
    assert head.split() == ["unit", "parameters", "shards", "gradients", "full", "state"]
    assert root.split()[:2] == ["(root)", "1,000"] and inner.startswith("layer.0 ")
    assert total.startswith("at most ") and len({len(head.split("parameters")[0])}) == 1


def test_bytes_are_those_of_this_ranks_rows():
    def body():
        m = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2).double())
        m[0].bias.requires_grad_(False)
        for part in (m[0], m[1], m):
            fully_shard(part, reshard_after_forward=True)
        report = memory_report(m)
        found = {u.name: (u.parameters, u.shards, u.gradients) for u in report.units}
        below = memory_report(m[1])
        assert [u.name for u in below.units] == [""] and below.units[0].shards == found["1"][1]
        assert memory_report(nn.Linear(1, 1)).units == ()
        return found, dist.get_rank()

    (first, _), (second, _) = on_ranks(body)
    # 5 rows of 3 and 5 of bias: 3 rows on the first rank; 2 rows of 5 and 2: one row each
    assert first["0"] == (20, 4 * (9 + 3), 4 * 9) and second["0"] == (20, 4 * (6 + 2), 4 * 6)
    assert first["1"] == second["1"] == (12, 8 * 6, 8 * 6)
    assert first[""] == (0, 0, 0)
