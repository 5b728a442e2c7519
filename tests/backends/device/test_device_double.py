"""The strict device double refuses what a device could not do, and does the rest as numpy."""

from __future__ import annotations

import numpy as np
import pytest
from standins.device_double.double import StreamRace, Unsupported, WrongDevice

from disttrain.backends.device.array import DeviceArray
from disttrain.backends.device.platform import platform
from disttrain.core import wrap


def up(double, *values, index=0):
    made = [double.upload(np.asarray(v), index) for v in values]
    double.counts.clear()
    return made if len(made) > 1 else made[0]


def down(double, array):
    return double.download(array)


def test_numpys_functions_run_there(double):
    host = np.arange(6.0).reshape(2, 3)
    a = up(double, host)
    made = [
        np.exp(a),
        np.sum(a, axis=1),
        a.T @ a,
        np.where(a > 2, a, 0.0),
        a[:, 1],
        a[::-1] * 2 - 1,
    ]
    want = [
        np.exp(host), host.sum(1), host.T @ host, np.where(host > 2, host, 0.0), host[:, 1],
        host[::-1] * 2 - 1,
    ]  # fmt: skip
    assert double.counts.transfers == 0 and not double.counts.waits
    for got, right in zip(made, want, strict=True):
        np.testing.assert_array_equal(down(double, got), right)
    assert np.max(a).shape == () and np.max(a).__class__ is a.__class__


@pytest.mark.parametrize(
    "use",
    [
        float, int, bool, list, np.asarray, np.array, np.ascontiguousarray, memoryview,
        lambda a: a + np.ones(3), lambda a: np.ones(3) + a, lambda a: np.add(np.ones(3), a),
        lambda a: np.ones(3) < a, lambda a: np.concatenate([np.ones(3), a]),
        lambda a: a.item(), lambda a: a.tolist(), lambda a: np.float64(a.sum()),
        lambda a: a[np.array([0])], lambda a: np.where(a > 0, np.ones(3), a), lambda a: 1.0 in a,
        lambda a: np.exp(a, out=np.ones(3)), lambda a: np.copyto(a, np.ones(3)),
        lambda a: np.copyto(np.ones(3), a), lambda a: a.__setitem__(0, np.ones(())),
        lambda a: [1, 2, 3][a.sum()], lambda a: np.arange(a.sum()), lambda a: f"{a:f}",
    ],
)  # fmt: skip
def test_never_meets_the_host(double, use):
    a = up(double, np.arange(1.0, 4))
    with pytest.raises(TypeError):
        use(a)


@pytest.mark.parametrize(
    "use",
    [
        lambda a: np.sum(a, where=a > 0), lambda a: np.add(a, a, where=a > 0),
        lambda a: np.maximum.reduce(a), lambda a: np.logical_or.accumulate(a > 0),
        lambda a: np.block([a, a]), lambda a: np.add.at(a.astype("f2").astype(bool), 0, True),
        lambda a: a.astype("M8[s]"), lambda a: np.spacing(a), lambda a: np.exp(a, subok=False),
        lambda a: np.array(a, like=a), lambda a: np.lib.stride_tricks.as_strided(a, (3,), (8,)),
        lambda a: a.max(initial=0), lambda a: a.flags.aligned,
    ],
)  # fmt: skip
def test_has_what_cupy_has_and_no_more(double, use):
    a = up(double, np.arange(1.0, 4))
    with pytest.raises((TypeError, AttributeError)):
        use(a)


def test_writing_an_element_twice_is_refused(double):
    a, twice, once = up(double, np.zeros(4), np.array([1, 5]), np.array([3, 2]))
    a[once] = up(double, np.ones(2))
    a[twice] = 7.0  # the same number: whichever comes last
    np.testing.assert_array_equal(down(double, a), [0, 7, 1, 1])
    with pytest.raises(Unsupported, match="twice"):
        a[twice] = up(double, np.ones(2))
    with pytest.raises(Unsupported, match="twice"):
        a[twice] += 1.0


def test_devices_do_not_meet(double):
    a, b = up(double, np.ones(2)), up(double, np.ones(2), index=1)
    with pytest.raises(WrongDevice):
        a + b
    with pytest.raises(WrongDevice):
        np.exp(b)
    moved = double.move(b, 0)
    assert double.index_of(moved) == 0 and double.counts.moves == 1
    np.testing.assert_array_equal(down(double, a + moved), [2, 2])


def test_streams_race_unless_events_order_them(double):
    a = up(double, np.ones(2))
    side = double.stream(0)
    with double.on(side), pytest.raises(StreamRace, match=r"add on stream .*upload on stream"):
        a + 1
    ready = double.event()
    ready.record(double.current_stream())
    side.wait_event(ready)
    with double.on(side):
        b = a + 1
    with pytest.raises(StreamRace, match="reads what is written by"):
        b * 2
    with pytest.raises(StreamRace, match="overwrites what is read by"):
        a[...] = 0.0
    side.synchronize()
    b * 2
    assert double.counts.waits == [f"stream {side.handle}"]


def test_memory_given_out_again_while_used(double):
    a = up(double, np.ones(64))
    side = double.stream(0)
    ready = double.event()
    ready.record(double.current_stream())
    side.wait_event(ready)

    def use(told):
        b = a + 0
        ready.record(double.current_stream())
        side.wait_event(ready)
        if told:
            double.record_use(b, side)
        with double.on(side):
            b * 2

    use(told=True)
    a + 1
    use(told=False)
    with pytest.raises(StreamRace, match="given out again"):
        a + 1


def test_memory_is_counted_and_empty_is_empty(double):
    before = double.memory_stats(0)["allocated"]
    a = double.empty((1000,), np.dtype("f4"))
    assert double.memory_stats(0)["allocated"] - before == 4096
    assert np.isnan(down(double, a)).all()
    del a
    assert double.memory_stats(0)["allocated"] == before
    assert double.memory_stats(0)["peak_allocated"] >= before + 4096


def test_copies_that_do_not_wait_arrive_when_waited_for(double):
    a = up(double, np.ones(3))
    out = double.pinned((3,), "f8")
    double.download(a, out, non_blocking=True)
    assert np.isnan(out).all() and not double.counts.waits
    double.current_stream().synchronize()
    np.testing.assert_array_equal(out, np.ones(3))
    double.upload(out, 0, non_blocking=True)
    out[0] = 5
    with pytest.raises(RuntimeError, match="before it was copied"):
        double.synchronize()


def test_device_arrays_compute_on_it(double):
    def tensor(*values):
        return wrap(DeviceArray(up(double, np.array(values)), platform("cuda"), 0))

    a, b = tensor(1.0, 2.0), tensor(3.0, 4.0)
    c = (a * b + 1.0).sum()
    assert isinstance(c.array, DeviceArray)
    np.testing.assert_array_equal(down(double, c.array.data), 13.0)
