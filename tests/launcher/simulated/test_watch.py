"""A rank that blocks where the simulation cannot see it is told."""

from __future__ import annotations

import threading

from disttrain.comm.transports.sim import Cluster, run_cluster
from disttrain_launcher.simulated.watch import Watch


def test_who_blocks_elsewhere_is_told_with_its_stack_and_who_computes_is_not() -> None:
    lock, told, watches = threading.Lock(), [], []
    lock.acquire()

    def say(text: str) -> None:
        told.append(text)
        lock.release()

    def body() -> None:
        sum(i * i for i in range(300_000))
        lock.acquire()
        lock.release()

    run_cluster(body, Cluster(1), 0, lambda s, f: watches.append(Watch(s, say, patience=0.2)))
    watches[0].end()
    assert len(told) == 1 and "rank 0 has waited" in told[0] and "lock.acquire()" in told[0]
