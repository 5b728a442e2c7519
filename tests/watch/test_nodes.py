"""What ranks on other nodes do: the memory that is asked by, and rows that others have sent."""

from __future__ import annotations

import json
import os

import pytest

from disttrain.errors import CommError
from disttrain.watch import nodes, running, table

pytestmark = pytest.mark.simulated


@pytest.fixture
def fd():
    made = nodes.create()
    yield made
    os.close(made)


def test_a_wish_holds_for_some_seconds(fd):
    assert not nodes.is_wanted(fd, 10.0)
    nodes.want(fd, 12.0)
    assert nodes.is_wanted(fd, 11.9) and not nodes.is_wanted(fd, 12.0)
    nodes.want(fd, 1e300)  # nobody may ask for ever
    assert not nodes.is_wanted(fd, 12.0)


def test_the_last_that_was_put_is_read_and_too_much_is_left_out(fd):
    assert nodes.get(fd) == (0, [])
    for count in (1, 2, 3):
        nodes.put(fd, json.dumps([{"node": count}, "no object"]).encode())
        assert nodes.get(fd) == (count, [{"node": count}])
    nodes.put(fd, b"[" + b" " * nodes.MOST_BYTES + b"]")
    assert nodes.get(fd)[0] == 3
    nodes.put(fd, b"[{")
    assert nodes.get(fd) == (0, [])


def test_other_memory_is_refused():
    other = os.memfd_create("other")
    with pytest.raises(CommError, match="another version"):
        nodes.get(other)
    os.write(other, bytes(4096))
    with pytest.raises(CommError, match="another version"):
        nodes.get(other)
    os.close(other)


def test_rows_of_others_are_taken_with_care():
    good = {"rank": 3, "host": "h\x1b[2J", "pid": 1, "state": "waits", "step": 2,
            "steps_per_second": 1.5, "samples_per_second": None, "late_ms": "x",
            "waited": float("inf"), "cpu": 0.5, "memory": 7, "doing": "a\nb"}  # fmt: skip
    told = [{"node": 1, "rows": [good, {"rank": 1}, 5]}, {"node": 0, "rows": [good]}, {"rows": 3}]
    rows, places = table.of_others(told, 0)
    assert places == {1} and len(rows) == 1
    row = rows[0]
    assert (row.node, row.host, row.doing) == (1, "h?[2J", "a?b")
    assert (row.late_ms, row.waited, row.steps_per_second) == (None, None, 1.5)
    assert "a?b" in "\n".join(table.lines(rows))
    assert running.Job("j", "p", 1, 1, "b", 1, 0.0).open_nodes() == -1
