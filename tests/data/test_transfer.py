"""Batches as messages, both ends in one process: what arrives, where, what is freed."""

from __future__ import annotations

import os
import socket

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain.data.slabs import FREE
from disttrain.data.transfer import BATCH, END, ERROR, MESSAGE, Receiver, Sender

LARGE = 1 << 16


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    sender, receiver = Sender(theirs), Receiver(ours, 2)
    yield sender, receiver
    receiver.close()
    ours.close()
    theirs.close()


def sent(ends, value, number=1, kind=BATCH):
    sender, receiver = ends
    sender.value(kind, number, value)
    ((got, slab, of, size),) = receiver.messages()
    assert (got, of) == (kind, number)
    return receiver.value(slab, size)


def test_values_of_any_kind_arrive(ends):
    value = {"x": [1, "two", None], "y": (np.arange(3), dt.arange(4.0).reshape(2, 2))}
    found = sent(ends, value)
    assert found["x"] == value["x"] and found["y"][0].tolist() == [0, 1, 2]
    assert found["y"][1].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert sent(ends, "text", kind=ERROR) == "text"


def test_tensors_keep_type_shape_and_whether_they_are_trained(ends):
    leaf = dt.ones(2, requires_grad=True)
    a, b, c, d, e = sent(
        ends,
        [leaf, leaf * 2, dt.ones(3, dtype=dt.bfloat16), dt.tensor(5), dt.ones(0, 4, dtype=dt.bool)],
    )
    assert a.requires_grad and not b.requires_grad and b.tolist() == [2.0, 2.0]
    assert c.dtype is dt.bfloat16 and c.tolist() == [1.0] * 3
    assert d.shape == () and d.item() == 5 and e.shape == (0, 4) and e.dtype is dt.bool
    half = sent(ends, np.ones((2, 1), ml_dtypes.bfloat16))
    assert half.dtype == ml_dtypes.bfloat16 and half.shape == (2, 1)
    turned = sent(ends, dt.arange(6.0).reshape(2, 3).T)
    assert turned.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


def test_what_arrives_may_be_written_to(ends):
    frozen = np.arange(4.0)
    frozen.flags.writeable = False
    for value in (dt.from_numpy(frozen.copy()), dt.arange(LARGE)):
        found = sent(ends, value)
        found += 1
        assert found[0].item() == 1


def test_large_arrays_lie_apart_and_are_given_back_one_by_one(ends):
    sender, _ = ends
    x, y, small = sent(ends, [dt.ones(LARGE), dt.zeros(LARGE), dt.ones(3)])
    states = sender.shelf.states
    busy = np.flatnonzero(states != FREE).tolist()
    assert len(busy) == 2  # the one with the structure is free again
    del x
    assert np.count_nonzero(states) == 1 and y.sum().item() == 0
    del y
    assert not states.any() and small.tolist() == [1.0] * 3


def test_many_large_arrays_share_one_slab(ends):
    sender, _ = ends
    found = sent(ends, [np.full(LARGE, i, np.uint8) for i in range(40)])
    assert [a[-1] for a in found] == list(range(40))
    assert np.count_nonzero(sender.shelf.states) == 1 and len(sender.shelf.slabs) == 1
    kept = found[7]
    del found
    assert np.count_nonzero(sender.shelf.states) == 1 and kept[0] == 7
    del kept
    assert not sender.shelf.states.any()


def test_memory_is_used_again_for_the_next_batch(ends):
    sender, _ = ends
    for number in range(6):
        x = sent(ends, dt.full((LARGE,), float(number)), number)
        assert x[0].item() == number
        del x
    assert len(sender.shelf.slabs) == 2


def test_what_is_dropped_frees_its_memory(ends):
    sender, receiver = ends
    sender.value(BATCH, 3, [dt.ones(LARGE), 1])
    ((_, slab, _, size),) = receiver.messages()
    assert np.count_nonzero(sender.shelf.states) == 2
    receiver.drop(slab, size)
    assert not sender.shelf.states.any()


def test_what_cannot_be_sent_leaves_no_slab_taken(ends, monkeypatch):
    sender, receiver = ends
    sent(ends, dt.ones(LARGE))
    with pytest.raises(Exception, match=r"pickle|lambda"):
        sender.value(BATCH, 1, [dt.ones(LARGE), lambda: 1])
    before, places = sender._room, []

    def full(num_bytes):
        if places:
            raise MemoryError("no room")
        places.append(num_bytes)
        return before(num_bytes)

    monkeypatch.setattr(sender, "_room", full)
    with pytest.raises(MemoryError):
        sender.value(BATCH, 1, [dt.ones(LARGE), dt.ones(LARGE)])
    assert not sender.shelf.states.any() and list(receiver.messages()) == []


def test_messages_are_read_in_pieces_without_waiting(ends):
    sender, receiver = ends
    assert list(receiver.messages()) == []
    message = MESSAGE.pack(END, 0, 9, 0)
    sender.sock.sendall(message[:5])
    assert list(receiver.messages()) == [] and not receiver.closed
    sender.sock.sendall(message[5:] + message[:1])
    assert list(receiver.messages()) == [(END, 0, 9, 0)]
    sender.sock.sendall(message[1:])
    sender.end(10)
    sender.sock.close()
    assert [m[2] for m in receiver.messages()] == [9, 10] and receiver.closed


def test_no_descriptor_stays_open(ends):
    sender, receiver = ends
    list(receiver.messages())
    before = len(os.listdir("/proc/self/fd"))
    for size in (1, 2, 3):
        sent(ends, dt.ones(size * LARGE))
    assert len(os.listdir("/proc/self/fd")) == before
    sender._lend(7, 10, os.dup(sender.sock.fileno()))
    receiver._fds.append(os.dup(sender.sock.fileno()))
    receiver.close()
    assert len(os.listdir("/proc/self/fd")) == before
