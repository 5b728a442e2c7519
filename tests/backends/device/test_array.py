"""Arrays on a device: moved, laid out alike, refused as numbers of the host."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from disttrain.backends.device.array import DeviceArray, Hosted, Located, _memory_order
from disttrain.errors import DeviceError


@pytest.fixture
def here(double):
    return Located(double, 0)


def prim(forward, **fields):
    base = {
        "name": "add_", "kinds": None, "on_device": None, "mutates": (), "multi": False,
        "args": ("a", "b"), "forward": forward,
    }  # fmt: skip
    return SimpleNamespace(**{**base, **fields})


def test_a_place_is_the_thread_s_inside_its_block(double):
    with pytest.raises(KeyError):
        with Located(double, 1):
            assert double.current() == 1
            raise KeyError
    assert double.current() == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a,
        lambda a: a.transpose(2, 0, 1),
        lambda a: a.T,
        lambda a: a[:, :1].transpose(1, 0, 2),
        lambda a: a[:0],
    ],
)
def test_an_array_comes_and_goes_laid_out_alike(here, make):
    host = make(np.arange(24.0).reshape(2, 3, 4))
    there = here.take(host)
    assert there.shape == host.shape and there.place == ("cuda", 0)
    back = there.to_host()
    np.testing.assert_array_equal(back, host)
    np.testing.assert_array_equal(here.take(there).to_host(), host)
    if _memory_order(host) is not None:
        assert there.strides == back.strides == host.strides


def test_the_order_in_memory_is_told_of_dense_arrays_only():
    a = np.zeros((2, 3, 4))
    assert _memory_order(a) is None and _memory_order(a[:, ::2]) is None
    assert _memory_order(a.transpose(2, 0, 1)) == [1, 2, 0]
    assert _memory_order(a[:, :2].T) is None  # gaps
    assert _memory_order(np.zeros((2, 1, 3)).transpose(2, 1, 0)) == [1, 2, 0]


def test_an_array_goes_to_another_device(double, here):
    there = Located(double, 1).take(here.take(np.arange(3.0)))
    assert there.place == ("cuda", 1) and there.to_host().tolist() == [0, 1, 2]
    assert double.counts.moves == 1


def test_nothing_takes_it_for_numbers_of_the_host(here):
    a = here.take(np.ones((2, 2)))
    for use in (np.asarray, bool, float, iter, lambda x: x[0], lambda x: x.tobytes()):
        with pytest.raises(DeviceError, match=r"shape \(2, 2\) on cuda:0 .* with .cpu"):
            use(a)
    assert here.take(np.array(2.5)).item() == 2.5


def test_a_primitive_runs_on_the_arrays_device_and_on_raw_arrays(double):
    there = Located(double, 1)
    a, b = there.take(np.ones(3)), there.take(np.full(3, 2.0))
    seen = []

    def forward(x, y, scale):
        seen.append((double.current(), type(x) is double.array_type))
        return x + y * scale

    got = a.run(prim(forward), [a, b], {"scale": 10})
    assert got.to_host().tolist() == [21, 21, 21] and got.index == 1
    assert seen == [(1, True)] and double.current() == 0 and double.sided


def test_numbers_of_the_host_go_along_and_arrays_do_not(here):
    a = here.take(np.ones(2))
    add = prim(lambda x, y: x + y)
    assert a.run(add, [a, np.array(2.0)], {}).to_host().tolist() == [3, 3]
    assert a.run(add, [a, 4.0], {}).to_host().tolist() == [5, 5]
    with pytest.raises(DeviceError) as raised:
        a.run(add, [a, np.ones(2)], {})
    text = str(raised.value)
    assert text.startswith("add: Expected all tensors to be on the same device: a (shape [2]) is")
    assert "on cuda:0, b (shape [2]) on cpu" in text and "test_array.py" in text


def test_two_devices_do_not_meet(double, here):
    a, b = here.take(np.ones(2)), Located(double, 1).take(np.ones(2))
    with pytest.raises(DeviceError, match=r"a \(shape \[2\]\) is on cuda:0, b .* on cuda:1"):
        a.run(prim(lambda x, y: x + y), [a, b], {})
    with pytest.raises(DeviceError, match=r"argument 1 \(shape"):
        a.run(prim(lambda x, y: x + y, args=None), [a, b], {})


def test_a_rule_for_devices_goes_before_the_forward(here):
    a = here.take(np.ones(2))
    rule = prim(None, on_device=lambda platform, x, y: x * platform.count(), multi=False)
    assert a.run(rule, [a, a], {}).to_host().tolist() == [2, 2]


def test_what_a_primitive_writes_is_what_it_gives(here):
    a = here.take(np.zeros(2))

    def write(x):
        x.fill(7)

    assert a.run(prim(write, mutates=(0,)), [a], {}) is a
    assert a.run(prim(write, mutates=(0,), multi=True), [a], {}) == (a,)
    assert a.to_host().tolist() == [7, 7]


def test_several_results_and_none_that_left_the_device(here):
    a = here.take(np.arange(4.0))
    halves = a.run(prim(lambda x: (x[:2], x[2:]), multi=True), [a], {})
    assert [h.to_host().tolist() for h in halves] == [[0, 1], [2, 3]]
    with pytest.raises(DeviceError, match=r"add: has no form .* it gave float; move .* \.cpu"):
        a.run(prim(lambda x: 1.0), [a], {})


def test_arrays_that_lie_together_do_so(double, here):
    a, b = here.take(np.ones(2)), here.take(np.ones(2))
    number = np.array(3.0)
    assert a.together([b, number]) == [a.data, b.data, number]
    assert a.together([Located(double, 1).take(np.ones(2))]) is None
    assert a.together([np.ones(2)]) is None


def test_memory_is_shared_by_views_alone(here):
    a = here.take(np.arange(6.0))
    with a.here():
        view = a.like(a.data[2:])
    assert view.shares_with(a) and a.shares_with(view) and not a.copy().shares_with(a)
    assert not a.shares_with(np.ones(6))
    assert view.root().address == a.address and view.address == a.address + 16
    assert a.owned(alone=True) is a and a.owned(alone=False) is not a
    assert view.owned(alone=True) is not view


def test_bytes_are_seen_as_other_elements(here):
    a = here.take(np.arange(6, dtype=np.int32))
    row = a.row()
    assert row.shape == (24,) and row.shares_with(a)
    seen = row.reseen((2, 2), np.int32, 4, (8, 4))
    assert seen.to_host().tolist() == [[1, 2], [3, 4]] and seen.shares_with(a)
    assert a.view(np.uint8).shape == (24,)


def test_a_row_grows_with_zeros(here):
    grown = here.take(np.arange(1.0, 3)).grown(4)
    assert grown.to_host().tolist() == [1, 2, 0, 0]


def test_arrays_like_one(here):
    a = here.take(np.arange(4, dtype=np.float32).reshape(2, 2))
    assert a.ones().to_host().tolist() == [[1, 1], [1, 1]] and a.ones().dtype == np.float32
    assert a.zeros().to_host().tolist() == [[0, 0], [0, 0]]
    assert a.blank((3,), np.dtype(np.int8)).dtype == np.int8
    a.add_in_place(a.ones())
    assert a.to_host().tolist() == [[1, 2], [3, 4]]
    assert repr(a) == "DeviceArray((2, 2), float32, cuda:0)"
    assert isinstance(a.beside(np.ones(1)), DeviceArray) and a.beside(None) is None


def test_what_shares_memory_there_shares_it_here(here):
    a = here.take(np.arange(6.0))
    with a.here():
        part, other = a.like(a.data[1:4]), a.like(a.data.reshape(2, 3)[:, 1])
    hosted = Hosted()
    whole = hosted.view(a)
    x, y = hosted.view(part), hosted.view(other)
    assert x.tolist() == [1, 2, 3] and y.tolist() == [1, 4]
    assert np.shares_memory(whole, x) and np.shares_memory(x, y)
    assert not np.shares_memory(whole, hosted.view(a.copy()))
    assert hosted.view(here.take(np.ones((0, 2)))).shape == (0, 2)
