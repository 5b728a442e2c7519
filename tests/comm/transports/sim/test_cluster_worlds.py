"""Default groups of some ranks of a simulated cluster: those that meet elsewhere are others."""

from __future__ import annotations

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.comm.transports.sim import Cluster, run_cluster


def test_worlds_of_one_size_at_one_time_do_not_meet() -> None:
    def body() -> list[float]:
        seat = context.current().rank
        sums = []
        for size, place in ((2, seat // 2), (1, seat)):
            url = f"tcp://127.0.0.1:{23400 + place}"
            dist.init_process_group("gloo", init_method=url, rank=seat % size, world_size=size)
            first = dist.new_group([0])
            for group in (None, first):
                x = dt.tensor([seat + 1.0])
                if group is None or dist.get_rank() == 0:
                    dist.all_reduce(x, group=group)
                sums.append(float(x[0]))
            dist.destroy_process_group()
        return sums

    for seed in range(4):
        tasks = run_cluster(body, Cluster(4), seed)[0].tasks
        assert [task.error for task in tasks] == [None] * 4
        assert [task.result for task in tasks] == [
            [3.0, 1.0, 1.0, 1.0],
            [3.0, 2.0, 2.0, 2.0],
            [7.0, 3.0, 3.0, 3.0],
            [7.0, 4.0, 4.0, 4.0],
        ]
