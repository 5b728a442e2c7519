"""Local messages between processes: peers that die, stop, are busy, or leave things behind."""

from __future__ import annotations

import gc
import itertools
import os
import select
import signal
import threading
import time

import numpy as np
import pytest
from rpc.messages.nodes import TOKEN

from disttrain import context
from disttrain.errors import CommError, PeerFailed
from disttrain.rpc.messages.contract.message import Message
from disttrain.rpc.messages.local import pool
from disttrain.rpc.messages.local.endpoint import LocalEndpoint

LARGE = np.arange(100_000)  # 800 KB


class Caller:
    """An endpoint of this process that calls one peer."""

    def __init__(self):
        self.endpoint = LocalEndpoint(0, TOKEN)
        self.answers, self.lost = {}, {}
        self.endpoint.serve(self._on_message, self.lost.__setitem__)
        self._calls = itertools.count(1)

    def _on_message(self, peer, message):
        self.answers[message.call] = message

    def ask(self, **message):
        call = next(self._calls)
        self.endpoint.send(1, Message(1, call, **message))
        return call

    def call(self, **message):
        call = self.ask(**message)
        block = self.endpoint.waiting(1, call)
        self.until(lambda: call in self.answers or self.lost, block)
        if call not in self.answers:
            raise self.lost[1]
        return self.answers.pop(call)

    def until(self, ready, block=None):
        context.wait_until(ready, lambda: "a test's condition", 50, block)


def serve(handle, pipe):
    """The body of a peer's process: handle requests until it is killed."""
    endpoint = LocalEndpoint(1, TOKEN)
    endpoint.serve(lambda peer, message: handle(endpoint, peer, message), lambda *lost: None)
    os.write(pipe, endpoint.address.encode())
    os.close(pipe)
    while True:
        signal.pause()


def echo(endpoint, peer, message):
    answer = Message(1, message.call, True, message.head, message.payload, message.arrays)
    endpoint.send(peer, answer)


def stop(pid):
    """Stop a child, and return when it has."""
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)


@pytest.fixture
def quick(monkeypatch):
    """Looks at processes more often."""
    monkeypatch.setattr(pool, "TICK", 0.1)


@pytest.fixture
def start():
    """start(handle): a peer in a process of its own, its pid, and a caller connected to it."""
    pids, callers = [], []

    def begin(handle=echo):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            try:
                serve(handle, write)
            finally:
                os._exit(1)
        os.close(write)
        pids.append(pid)
        address = os.read(read, 1000).decode()
        os.close(read)
        caller = Caller()
        callers.append(caller)
        caller.endpoint.connect(1, address)
        return pid, caller

    yield begin
    for caller in callers:
        caller.endpoint.close()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_calls_between_processes(start):
    _, caller = start()
    for size in (0, 10, 200_000):
        data = np.arange(size, dtype=np.float32)
        came = caller.call(head=b"h", payload=bytes(size), arrays=[data])
        assert np.array_equal(came.arrays[0], data) and bytes(came.payload) == bytes(size)


def test_a_killed_peer_is_lost_at_once(start):
    pid, caller = start(lambda endpoint, peer, message: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(PeerFailed, match=rf"its process {pid} has ended") as error:
        caller.call(arrays=[LARGE])
    assert error.value.rank == 1 and caller.lost == {1: error.value}
    with pytest.raises(PeerFailed, match="has ended"):
        caller.ask()


def test_an_event_of_what_had_the_same_descriptor_before_ends_no_process(start):
    pid, caller = start()
    caller.call(payload=b"x")
    process = caller.endpoint._processes[pid]
    caller.endpoint._pool._run(process.fd, select.EPOLLIN)
    assert not process.ended and caller.call(payload=b"y").payload == b"y" and not caller.lost


def test_an_idle_peer_that_is_killed_is_lost_too(start):
    pid, caller = start()
    caller.call()
    os.kill(pid, signal.SIGKILL)
    caller.until(lambda: caller.lost)
    assert "has ended" in str(caller.lost[1])


def test_a_killed_peer_is_lost_though_its_child_holds_its_sockets(start):
    """A forked child (of a data loader, say) keeps every descriptor of its parent open."""

    def handle(endpoint, peer, message):
        child = os.fork()
        if child == 0:
            signal.pause()
        echo(endpoint, peer, Message(1, message.call, head=b"%d" % child))

    pid, caller = start(handle)
    child = int(caller.call().head)
    try:
        os.kill(pid, signal.SIGKILL)
        caller.until(lambda: caller.lost)
        assert "has ended" in str(caller.lost[1])
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_stopped_peer_is_named(start):
    pid, caller = start()
    caller.call()
    stop(pid)
    with pytest.raises(PeerFailed, match=rf"its process {pid} is stopped \(SIGSTOP\)"):
        caller.call()


def test_a_peer_that_takes_nothing_more_is_named_when_it_is_stopped(start, quick):
    """The caller is stuck in a send, not in a wait."""
    pid, caller = start()
    caller.call()
    stop(pid)
    with pytest.raises(PeerFailed, match="SIGSTOP"):
        for _ in range(1000):
            caller.ask(payload=bytes(40_000))


def test_a_peer_that_is_busy_is_not_lost(start, quick):
    """It holds its interpreter's lock, so that no thread of it can do anything, for longer than a
    stopped one would be told as lost."""

    def hold(endpoint, peer, message):
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            sorted(range(2_000_000, 0, -1))  # one call that never gives the lock away
        echo(endpoint, peer, message)

    _, caller = start(hold)
    caller.call()
    assert not caller.lost


def test_blocks_come_back_when_the_receiver_lets_go(start):
    kept = []

    def keep_or_drop(endpoint, peer, message):
        kept.append(message.arrays)
        if message.head == b"drop":
            kept.clear()
        endpoint.send(peer, Message(1, message.call, True))

    _, caller = start(keep_or_drop)
    lender = caller.endpoint._lender
    caller.call(arrays=[LARGE, LARGE])
    assert lender.lent_bytes() >= 2 * LARGE.nbytes
    caller.call(head=b"drop", arrays=[LARGE])
    caller.until(lambda: lender.lent_bytes() == 0)


def test_blocks_of_a_dead_receiver_come_back(start):
    kept = []

    def keep(endpoint, peer, message):
        kept.append(message.arrays)
        endpoint.send(peer, Message(1, message.call, True))

    pid, caller = start(keep)
    caller.call(arrays=[LARGE, LARGE])
    os.kill(pid, signal.SIGKILL)
    caller.until(lambda: caller.lost)
    caller.until(lambda: caller.endpoint._lender.lent_bytes() == 0)


def test_blocks_of_a_disconnected_receiver_come_back_when_it_has_ended(start):
    kept = []

    def keep(endpoint, peer, message):
        kept.append(message.arrays)
        endpoint.send(peer, Message(1, message.call, True))

    pid, caller = start(keep)
    caller.call(arrays=[LARGE])
    caller.endpoint.disconnect(1)
    assert caller.endpoint._lender.lent_bytes() >= LARGE.nbytes
    os.kill(pid, signal.SIGKILL)
    caller.until(lambda: caller.endpoint._lender.lent_bytes() == 0)


def test_blocks_of_a_stopped_receiver_stay_until_it_has_ended(start, quick):
    """It may go on and write into them."""
    kept = []

    def keep(endpoint, peer, message):
        kept.append(message.arrays)
        endpoint.send(peer, Message(1, message.call, True))

    pid, caller = start(keep)
    caller.call(arrays=[LARGE])
    stop(pid)
    caller.until(lambda: caller.lost)
    assert caller.endpoint._lender.lent_bytes() >= LARGE.nbytes
    os.kill(pid, signal.SIGKILL)
    caller.until(lambda: caller.endpoint._lender.lent_bytes() == 0)


def test_received_arrays_outlive_the_sender(start):
    pid, caller = start()
    came = caller.call(arrays=[LARGE]).arrays[0]
    os.kill(pid, signal.SIGKILL)
    caller.until(lambda: caller.lost)
    caller.endpoint.close()
    came += 1
    assert np.array_equal(came, LARGE + 1)


def test_a_forked_child_disturbs_nobody(start):
    """It may look at what its parent received, may not send, and its end gives nothing back."""
    _, caller = start()
    came = caller.call(arrays=[LARGE]).arrays
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with pytest.raises(CommError, match="forked"):
                caller.ask()
            caller.endpoint.close()
            total = came[0].sum()
            came.clear()
            gc.collect()
            code = 0 if total == LARGE.sum() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert caller.call(arrays=[LARGE]).arrays[0].ctypes.data != came[0].ctypes.data
    assert np.array_equal(came[0], LARGE)


def held():
    """(descriptors, mappings of shared memory) of this process."""
    with open("/proc/self/maps") as file:
        maps = sum("disttrain-rpc" in line for line in file)
    return len(os.listdir("/proc/self/fd")), maps


def test_peers_that_are_killed_at_any_moment(start):
    """Amid messages of every size, from two threads: both get the error, all memory comes back."""
    for moment in range(8):
        killed_after(0.004 * moment, *start())


def killed_after(seconds, pid, caller):
    errors = []

    def traffic(i):
        try:
            while True:
                caller.call(payload=bytes(70_000 * i), arrays=[LARGE, LARGE[:99]])
        except PeerFailed as error:
            errors.append(str(error))

    for i in range(2):
        threading.Thread(target=traffic, args=(i,), daemon=True).start()
    context.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    caller.until(lambda: len(errors) == 2)
    assert all(f"its process {pid} has ended" in error for error in errors)
    caller.answers.clear()
    caller.until(lambda: caller.endpoint._lender.lent_bytes() == 0)


def resources():
    gc.collect()
    descriptors, maps = held()
    return descriptors, threading.active_count(), maps


def test_thousands_of_messages_leave_nothing(start):
    _, caller = start()
    small, large = np.zeros(10), np.zeros(20_000)

    def some(n):
        for i in range(n):
            caller.call(arrays=[large if i % 10 == 0 else small])

    some(200)
    before, held = resources(), caller.endpoint._lender._arena.used_bytes()
    some(3000)
    # A look at the peer's process has a file open for a moment.
    caller.until(lambda: all(a <= b for a, b in zip(resources(), before)))
    assert caller.endpoint._lender._arena.used_bytes() <= 2 * held


def test_endpoints_that_come_and_go_leave_nothing():
    def once():
        ends = [LocalEndpoint(i, TOKEN) for i in range(2)]
        got = []
        for end in ends:
            end.serve(lambda peer, message: got.append(message), lambda *lost: None)
        ends[0].connect(1, ends[1].address)
        ends[1].connect(0, ends[0].address)
        ends[0].send(1, Message(0, 0, arrays=[LARGE]))
        ends[1].send(0, Message(0, 0, arrays=[LARGE]))
        context.wait_until(lambda: len(got) == 2, lambda: "messages", 50)
        got.clear()
        for end in ends:
            end.close()

    once()
    before = resources()
    gc.disable()  # descriptors and mappings must not wait for it
    try:
        for _ in range(30):
            once()
        context.wait_until(lambda: held() == before[::2], lambda: "the last mapping to go", 50)
    finally:
        gc.enable()
    assert resources() == before


def test_closing_amid_traffic_ends_it():
    ends = [LocalEndpoint(i, TOKEN) for i in range(2)]
    stopped = []
    for end in ends:
        end.serve(lambda p, m, end=end: m.answers or echo(end, p, m), lambda *lost: None)
    before = threading.active_count()

    def traffic(i):
        calls = 0
        try:
            while True:
                calls += 1
                ends[0].send(1, Message(1, calls, arrays=[LARGE if calls % 9 == 0 else LARGE[:9]]))
        except CommError:
            stopped.append(calls)

    ends[0].connect(1, ends[1].address)
    for i in range(3):
        threading.Thread(target=traffic, args=(i,), daemon=True).start()
    context.sleep(0.05)
    ends[1].close()
    context.wait_until(lambda: len(stopped) == 3, lambda: "traffic to end", 50)
    ends[0].close()
    context.wait_until(lambda: threading.active_count() < before, lambda: "threads to end", 50)


def test_a_peer_that_connects_anew_before_its_end_was_read_is_told_of():
    """Its answers to what was asked before will not come: who waits for them must hear of it."""
    lost, again = [], []
    with LocalEndpoint(0, TOKEN) as caller, LocalEndpoint(1, TOKEN) as callee:
        callee.serve(lambda peer, message: None, lambda *lost: None)
        caller.serve(lambda peer, message: again.append(message), lambda *told: lost.append(told))
        caller.connect(1, callee.address)
        callee.connect(0, caller.address)
        caller.send(1, Message(1, 5))
        old = caller._peers[1]
        context.wait_until(lambda: old.serves is not None, lambda: "the first connection", 10)
        links = old.links()
        for link in links:  # its end is not read yet
            assert link.reading.acquire(timeout=10)
        callee.disconnect(0)
        callee.connect(0, caller.address)
        callee.send(0, Message(1, 0))
        context.wait_until(lambda: again, lambda: "a message on the new connection", 10)
        for link in links:
            link.stop_reading()
        context.wait_until(lambda: lost, lambda: "the end of the old one", 10)
        ((peer, error),) = lost
        assert peer == 1 and isinstance(error, PeerFailed) and "anew" in str(error)
