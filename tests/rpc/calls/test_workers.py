"""Names and numbers of workers; what travels before a call."""

import pickle

import pytest

from disttrain.errors import CommError, WorkerError
from disttrain.rpc.calls.header import read_head, write_head
from disttrain.rpc.calls.workers import WorkerInfo, Workers, check_unique


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("abc*", "must match"),
        (" ", "must match"),
        ("", "must be non-empty"),
        ("a" * 128, "shorter than 128"),
    ],
)
def test_names_that_cannot_be_one(name, says):
    with pytest.raises(RuntimeError, match=says):
        WorkerInfo(name, 0)


@pytest.mark.parametrize("id", [-1, 65536])
def test_numbers_that_cannot_be_one(id):
    with pytest.raises(WorkerError, match="0 to 65535"):
        WorkerInfo("a", id)


def test_a_worker_is_its_name_and_number():
    w = WorkerInfo("a-b:c_1", 3)
    assert w == WorkerInfo("a-b:c_1", 3) != WorkerInfo("a-b:c_1", 4)
    assert str(w) == "WorkerInfo(id=3, name=a-b:c_1)" and len({w, WorkerInfo("a-b:c_1", 3)}) == 1
    assert pickle.loads(pickle.dumps(w)) == w and w != "a-b:c_1"


def test_finding_and_losing_workers():
    ws = Workers(WorkerInfo("me", 0))
    other = WorkerInfo("you", 1)
    ws.add(other)
    assert ws.find("you") is ws.find(1) is ws.find(WorkerInfo("you", 1)) is other
    for to in ("them", 2, -1, WorkerInfo("them", 9)):
        with pytest.raises(RuntimeError, match=r"could not find destination.*me .0., you .1."):
            ws.find(to)
    for to in (0.5, None, b"me"):
        with pytest.raises(ValueError, match="Cannot get WorkerInfo"):
            ws.find(to)
    ws.remove(other)
    with pytest.raises(WorkerError):
        ws.find("you")
    assert ws.names() == ["me"]


def test_two_workers_share_neither_name_nor_number():
    check_unique([WorkerInfo("a", 0), WorkerInfo("b", 1), WorkerInfo("a", 0)])
    with pytest.raises(WorkerError, match=r"name a is not unique. Workers 0 and 1"):
        check_unique([WorkerInfo("a", 0), WorkerInfo("a", 1)])
    with pytest.raises(WorkerError, match=r"id 0 is not unique. Workers a and b"):
        check_unique([WorkerInfo("a", 0), WorkerInfo("b", 0)])


def test_heads():
    assert read_head(b"", 0) == (0, [])
    assert read_head(write_head(7, []), 0) == (7, [])
    said = [(0, b""), (2, b"abc")]
    assert read_head(write_head(1, said), 3) == (1, said)


@pytest.mark.parametrize(
    "head", [b"\0", b"\0\0\0", write_head(0, [(1, b"x")]), write_head(0, [(0, b"abc")])[:-1]]
)
def test_heads_that_cannot_be_read(head):
    with pytest.raises(CommError, match="cannot be read"):
        read_head(head, 1)
