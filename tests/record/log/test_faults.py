"""Exceptions as data: of known classes only."""

from __future__ import annotations

import json

import pytest

from disttrain.errors import CollectiveMismatch, PeerFailed, WaitTimeout
from disttrain.record.log.faults import as_data, from_data

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize("error", [
    PeerFailed(2, "killed by SIGKILL", where="barrier"), WaitTimeout("too late"), ValueError("no"),
    CollectiveMismatch("ranks differ"), KeyboardInterrupt(),
])  # fmt: skip
def test_they_come_back(error):
    found = from_data(json.loads(json.dumps(as_data(error))))
    assert type(found) is type(error) and str(found) == str(error)
    assert getattr(found, "rank", None) == getattr(error, "rank", None)


def test_a_class_of_a_program_comes_back_as_the_nearest_that_is_known():
    class Mine(WaitTimeout):
        pass

    assert type(from_data(as_data(Mine("x")))) is WaitTimeout
    assert type(from_data({"kinds": ["eval", "os"], "text": "x", "own": {}})) is RuntimeError
