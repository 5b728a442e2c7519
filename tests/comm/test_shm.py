"""The shared-memory transport passes the conformance suite, and what only it promises."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest
from comm.conformance import Conformance, Failures

from support.groups import group_outcomes, run_group


@pytest.fixture
def ranks():
    return SimpleNamespace(
        run=run_group,
        outcomes=group_outcomes,
        die=lambda: os.kill(os.getpid(), signal.SIGKILL),
    )


class TestShm(Conformance):
    pass


class TestShmFailures(Failures):
    pass
