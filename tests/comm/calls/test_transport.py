"""What transports share: refusals, reducers that are kept, and what a verb of no device does."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.comm.calls.reduce_ops import ReduceOp, premul_sum
from disttrain.comm.calls.transport import HostTransport, Transport
from disttrain.errors import CommError

pytestmark = pytest.mark.simulated


def of(base):
    """``base`` with verbs that do nothing."""
    verbs = dict.fromkeys(Transport.__abstractmethods__, lambda self, *args: None)
    return type("Bare", (base,), {**verbs, "kind": "bare"})


@pytest.fixture
def host():
    return of(HostTransport)(1, 3, "world", timeout=7.0, epoch=2)


def test_a_transport_has_all_verbs_or_is_none():
    with pytest.raises(TypeError, match="abstract"):
        HostTransport(0, 1, "world")
    wanted = set(Transport.__abstractmethods__)
    assert wanted == {
        "barrier", "broadcast", "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
        "send", "recv", "split", "close",
    }  # fmt: skip


def test_it_knows_where_it_is(host):
    assert (host.rank, host.size, host.name, host.timeout, host.epoch) == (1, 3, "world", 7.0, 2)
    assert host.group() is None and host.allocate(5).nbytes == 5
    assert host.share(None, 8) is None


def test_what_a_transport_cannot_do_it_says(host):
    with pytest.raises(
        CommError, match=r"shrink: the bare transport cannot go on .*--max-restarts"
    ):
        host.shrink(1.0)
    with host.together():
        pass
    for nothing in (host.bind(0), host.divide(None, None, ""), host.abandon()):
        assert nothing is None


def test_the_first_reason_for_which_a_group_is_over_is_told(host):
    host._usable()
    host._break(ValueError("x"))
    host.disable("it was closed")
    with pytest.raises(CommError) as error:
        host._usable()
    assert "group world: cannot be used any more, since an operation ended in the middle" in str(
        error.value
    )
    assert "(ValueError)" in str(error.value) and "closed" not in str(error.value)


def test_reducers_are_made_once_for_an_operator_and_a_type(host):
    add = host._reducer(ReduceOp.SUM, np.dtype("f4"))
    assert host._reducer(ReduceOp.SUM, np.dtype("f4")) is add
    assert host._reducer(ReduceOp.MAX, np.dtype("f4")) is not add
    assert host._reducer(ReduceOp.SUM, np.dtype("f8")) is not add
    out = np.zeros(2, "f4")
    add([np.full(2, k, "f4") for k in (1, 2, 3)], out)
    assert out.tolist() == [6, 6]


def test_ever_new_factors_do_not_fill_memory(host):
    for k in range(200):
        host._reducer(premul_sum(k + 0.5), np.dtype("f4"))
    assert len(host._reducers) <= 64
