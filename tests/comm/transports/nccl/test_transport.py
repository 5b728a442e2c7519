"""NCCL's transport passes the conformance suite, over a stand-in for the library and a double of
the devices."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from comm.transports import conformance
from comm.transports.conformance import BF16, BOOL, COMPLEX, Conformance
from comm.transports.nccl.ranks import outcomes_on

from disttrain.comm.transports import sim
from support.ranks import values


def ops_of(dtype: np.dtype) -> list:
    """An average of complex numbers is one of pairs here, which rounds in another way."""
    ops = _ops_of(dtype)
    return [op for op in ops if dtype != COMPLEX or op.name != "AVG"]


@pytest.fixture
def ranks(four, monkeypatch):
    monkeypatch.setattr(conformance, "DTYPES", _TYPES)
    monkeypatch.setattr(conformance, "SMALL", [0, 13])
    monkeypatch.setattr(conformance, "LARGE", 20_011)
    monkeypatch.setattr(conformance, "ops_of", ops_of)
    return SimpleNamespace(
        run=lambda n, fn, timeout=20.0: values(outcomes_on(four, n, fn)),
        outcomes=lambda n, fn, timeout=20.0: outcomes_on(four, n, fn),
        die=sim.die,
    )


_ops_of = conformance.ops_of
_TYPES = [np.dtype("f4"), BF16, np.dtype("i2"), BOOL, COMPLEX]
# All verbs, once. NCCL has an order of its own, for sums and for the messages of a pair.
_VERBS = (
    *("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_uneven", "broadcast", "all_gather"),
    *("all_gather_uneven", "all_to_all", "all_to_all_uneven", "gather_and_scatter", "barrier"),
    *("every_verb_async", "work_then", "split", "new_group", "groups_interleave"),
    *("recv_from_anyone", "outputs_over_inputs", "wrong_arguments"),
)
_TESTS = {f"test_{name}": getattr(Conformance, f"test_{name}") for name in _VERBS}
TestNccl = pytest.mark.parametrize("world", [3])(type("TestNccl", (), _TESTS))
