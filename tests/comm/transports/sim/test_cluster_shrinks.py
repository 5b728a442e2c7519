"""Ranks of a simulated cluster go on without one that was killed."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.comm.transports.sim import Cluster, Killed, run_cluster
from disttrain.comm.transports.sim.fabric import SILENCE, required
from disttrain.comm.transports.sim.faults import parse_fault
from disttrain.errors import CommError, PeerFailed


@pytest.mark.parametrize("seed", range(4))
def test_survivors_agree_and_go_on_again_and_again(seed: int) -> None:
    points = ("1@all_reduce:3", "3@all_reduce:6")
    cluster = Cluster(5, 2, faults=tuple(parse_fault("kill", p, 5) for p in points))

    def body() -> tuple:
        dist.init_process_group()
        told, sums = [], []
        while len(sums) < 8:
            x = dt.ones(3)
            try:
                dist.all_reduce(x)
                sums.append(float(x[0]))
            except PeerFailed as error:
                told.append((error.rank, dist.shrink()))
        dist.barrier()
        result = dist.get_rank(), dist.get_world_size(), told, sums[-1]
        dist.destroy_process_group()
        return result

    tasks = run_cluster(body, cluster, seed)[0].tasks
    assert all(isinstance(tasks[rank].error, Killed) for rank in (1, 3))
    told = [(1, [0, 2, 3, 4]), (2, [0, 1, 3])]
    assert [tasks[rank].result for rank in (0, 2, 4)] == [(i, 3, told, 3.0) for i in range(3)]


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_rank_without_a_network_is_alone_and_the_others_go_on(hosts: int) -> None:
    def body() -> object:
        dist.init_process_group()
        me = dist.get_rank()
        if me == 0:
            required().cut(0)
        began = context.now()
        with pytest.raises(PeerFailed, match="its link has ended") as told:
            while True:
                dist.all_reduce(dt.ones(3)) if me else dist.recv(dt.ones(3), 2)
        assert context.now() - began == pytest.approx(SILENCE, abs=0.1)
        if me == 0:
            with pytest.raises(CommError, match="has no network"):
                dist.shrink()
            return told.value.rank
        assert dist.shrink() == [1, 2]
        x = dt.ones(3)
        dist.all_reduce(x)
        return told.value.rank, x.tolist()

    tasks = run_cluster(body, Cluster(3, hosts), seed=hosts)[0].tasks
    assert [task.result for task in tasks] == [1, (0, [2.0] * 3), (0, [2.0] * 3)], tasks[0].text
