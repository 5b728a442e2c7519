"""The transport between hosts passes the conformance suite, on every kind of layout."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest
from comm.conformance import Conformance, Failures

from support.hosts import host_outcomes, run_hosts

# Hosts with different numbers of ranks, and with ranks that are no neighbours.
LAYOUTS = {1: "a", 2: "ab", 3: "abb", 4: "abac"}


@pytest.fixture
def ranks():
    return SimpleNamespace(
        run=lambda n, fn: run_hosts(LAYOUTS[n], fn),
        outcomes=lambda n, fn: host_outcomes(LAYOUTS[n], fn),
        die=lambda: os.kill(os.getpid(), signal.SIGKILL),
    )


class TestTcp(Conformance):
    worlds = (3, 4)


class TestTcpFailures(Failures):
    pass
