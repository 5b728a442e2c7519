"""The simulated cluster's own transport passes the conformance suite, in and out of time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from comm.transports.conformance import Conformance, Failures

from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.transports import sim
from disttrain.comm.transports.sim.fabric import Cluster
from support.ranks import Outcome, values


def outcomes(n: int, fn: Callable[[ProcessGroup], Any], timeout: float = 20.0) -> list[Outcome]:
    def body() -> Any:
        group = ProcessGroup(sim.connect())
        group.timeout = timeout
        return fn(group)

    cluster = Cluster(n, num_hosts=1 + n // 3, compute=0.0)
    tasks = sim.run_cluster(body, cluster, seed=n)[0].tasks
    return [
        Outcome(t.rank, t.result, t.error, t.text, exitcode=0 if t.error is None else 1)
        for t in tasks
    ]


@pytest.fixture
def ranks():
    return SimpleNamespace(
        run=lambda n, fn, timeout=20.0: values(outcomes(n, fn, timeout)),
        outcomes=outcomes,
        die=sim.die,
    )


# Two sizes find what four do: here is no memory in which ranks lie in different places.
_TESTS = {name: test for name, test in vars(Conformance).items() if name.startswith("test_")}
TestSimTransport = pytest.mark.parametrize("world", [1, 3])(type("TestSimTransport", (), _TESTS))


class TestSimTransportFailures(Failures):
    pass
