"""Arrays of devices by way of the host: each verb of a group of one, and what it copies."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from disttrain.comm.calls.work import Done, Work
from disttrain.comm.group.staged import Staged

pytestmark = pytest.mark.simulated

CALL = SimpleNamespace(text="a call")


class Later(Work):
    """One that only the test ends."""

    def _poll(self):
        pass


class Doubling:
    """A CPU's transport of two ranks, whose peer has what this rank has; ``late``: its works end
    when the test says so."""

    rank, size, name, timeout, epoch, kind = 0, 2, "world", 9.0, 3, "shm"

    def __init__(self, late=False):
        self.late, self.works, self.seen = late, [], []

    def _over(self, then, async_op, result=None):
        if not async_op:
            then()
            return None
        work = Later() if self.late else Done(result)
        if self.late:
            self.works.append((work, then, result))
        else:
            then()
        return work

    def end(self):
        for work, then, result in self.works:
            then()
            work._end(result)

    def barrier(self, call, *, async_op=False):
        return "barrier"

    def broadcast(self, call, array, root, *, async_op=False):
        self.seen.append(array.copy())
        return self._over(lambda: array.fill(7) if root else None, async_op)

    def all_reduce(self, call, array, op, *, async_op=False):
        return self._over(lambda: np.multiply(array, 2, out=array), async_op)

    def all_gather(self, call, outs, array, *, async_op=False):
        return self._over(lambda: [np.copyto(out, array) for out in outs], async_op)

    def reduce_scatter(self, call, out, ins, op, *, async_op=False):
        return self._over(lambda: np.copyto(out, ins[0] * 2), async_op)

    def all_to_all(self, call, outs, ins, *, ragged=False, async_op=False):
        self.seen.append(ragged)
        return self._over(lambda: [np.copyto(o, i) for o, i in zip(outs, ins)], async_op)

    def send(self, call, array, dst, tag):
        self.seen.append((array.tolist(), dst, tag))
        return Done()

    def recv(self, call, array, src, tag):
        return self._over(lambda: array.fill(tag), True, 1)

    def split(self, call, members, name, swap=None):
        return "part", members, name


@pytest.fixture
def staged(double):
    return Staged(Doubling(), double)


def put(double, *values, index=0):
    return double.upload(np.array(values, np.float32), index)


def get(double, array):
    return double.download(array).tolist()


def test_it_is_as_the_cpu_s_transport(staged):
    assert (staged.rank, staged.size, staged.name, staged.epoch) == (0, 2, "world", 3)
    assert (staged.kind, staged.timeout) == ("shm", 9.0)
    assert staged.barrier(CALL) == "barrier"
    assert staged.split(CALL, [0], "half") == ("part", [0], "half")
    staged.close(CALL)


def test_results_come_back_to_the_device(double, staged):
    a = put(double, 1, 2)
    assert staged.all_reduce(CALL, a, None) is None and get(double, a) == [2, 4]
    outs = [put(double, 0, 0), put(double, 0, 0)]
    staged.all_gather(CALL, outs, a)
    assert [get(double, out) for out in outs] == [[2, 4], [2, 4]]
    out = put(double, 0, 0)
    staged.reduce_scatter(CALL, out, [a, a], None)
    assert get(double, out) == [4, 8]
    outs = [put(double, 0), put(double, 0)]
    staged.all_to_all(CALL, outs, [put(double, 5), put(double, 6)], ragged=True)
    assert [get(double, out) for out in outs] == [[5], [6]] and staged.cpu.seen == [True]


def test_arrays_go_back_to_their_own_device(double, staged):
    a = put(double, 3, index=1)
    staged.all_reduce(CALL, a, None)
    assert get(double, a) == [6] and double.current() == 0


def test_a_root_sends_what_it_has_and_copies_nothing_back(double, staged):
    a = put(double, 1, 2)
    double.counts.clear()
    staged.broadcast(CALL, a, 0)
    assert staged.cpu.seen[0].tolist() == [1, 2] and double.counts.uploads == 0
    double.counts.clear()
    staged.broadcast(CALL, a, 1)
    assert get(double, a) == [7, 7] and double.counts.downloads == 1, "which this test asked for"


def test_an_operation_in_flight_copies_when_it_has_ended(double):
    staged = Staged(Doubling(late=True), double)
    a = put(double, 1, 2)
    work = staged.all_reduce(CALL, a, None, async_op=True)
    assert not work.is_completed() and get(double, a) == [1, 2]
    staged.cpu.end()
    assert work.is_completed() and work.wait() is a and get(double, a) == [2, 4]


def test_messages_carry_values_and_say_whom_they_came_from(double, staged):
    staged.send(CALL, put(double, 1, 2), 1, 5).wait()
    assert staged.cpu.seen == [([1, 2], 1, 5)]
    a = put(double, 0, 0)
    assert staged.recv(CALL, a, None, 4).wait() == 1
    assert get(double, a) == [4, 4]


def test_nothing_is_copied_of_no_elements(double, staged):
    a = double.empty((0,), np.float32)
    double.counts.clear()
    staged.all_reduce(CALL, a, None)
    assert double.counts.uploads == 0
