"""Tensors over the devices of one process: copies, sums, pieces, and where they lie."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.cuda import comm
from disttrain.errors import DeviceError, ShapeError

pytestmark = pytest.mark.usefixtures("double")


def places(tensors):
    return [t.device.index for t in tensors]


def test_a_copy_on_each_device_or_into_each_of_out():
    x = dt.arange(3.0)
    found = comm.broadcast(x, ["cuda:1", 0])
    assert places(found) == [1, 0] and [t.tolist() for t in found] == [x.tolist()] * 2
    out = [dt.zeros(3, device="cuda:1"), dt.zeros(3)]
    assert comm.broadcast(x, out=out)[0] is out[0] and out[1].tolist() == x.tolist()
    for wrong in ({}, {"devices": [0], "out": out}):
        with pytest.raises(RuntimeError, match="Exactly one of 'devices' and 'out'"):
            comm.broadcast(x, **wrong)
    both = comm.broadcast_coalesced([x, x + 1], [0, 1])
    assert [places(each) for each in both] == [[0, 0], [1, 1]] and both[1][1].tolist() == [1, 2, 3]


def test_sums_end_where_they_are_asked_for():
    x, y = dt.ones(2, device="cuda:0"), dt.full((2,), 3.0, device="cuda:1")
    assert comm.reduce_add([x, y], "cuda:1").tolist() == [4.0, 4.0]
    assert comm.reduce_add([x, y], 1).device.index == 1
    with dt.cuda.device(1):
        assert comm.reduce_add([x, y]).device.index == 1
    several = comm.reduce_add_coalesced([[x, y], [x, x]], 0)
    assert [t.tolist() for t in several] == [[2.0, 2.0], [4.0, 4.0]]
    with pytest.raises(ShapeError, match=r"shapes \[\[2\], \[1\]\] given; they must be the same"):
        comm.reduce_add([x, y[:1]])
    with pytest.raises(ShapeError, match="they must be the same"):
        comm.reduce_add([])


def test_pieces_are_of_one_size_but_the_last():
    x = dt.arange(5.0)
    assert [p.tolist() for p in comm.scatter(x)] == [[0.0, 1.0, 2.0], [3.0, 4.0]]
    found = comm.scatter(x, [0, 1, 0, 1])  # as chunk cuts, which needs three
    assert [p.tolist() for p in found] == [[0.0, 1.0], [2.0, 3.0], [4.0]]
    assert places(found) == [0, 1, 0]
    (column, rest) = comm.scatter(dt.ones(2, 3), [1, 0], [1, 2], dim=1)
    assert (column.shape, rest.shape, places([column, rest])) == ((2, 1), (2, 2), [1, 0])
    assert next(iter(comm.scatter(dt.ones(0, 2), [0, 1]))).shape == (0, 2)


def test_no_piece_is_lost():
    x = dt.arange(6.0)
    for devices, sizes in (([0, 1], [2, 2, 2]), ([0, 1, 0], [3, 3])):
        with pytest.raises(RuntimeError, match="devices and chunk_sizes to be of same length"):
            comm.scatter(x, devices, sizes)


def test_pieces_into_what_is_there():
    out = [dt.zeros(2, device="cuda:1"), dt.zeros(4, device="cuda:0")]
    found = comm.scatter(dt.arange(6.0), out=out)
    assert found[1] is out[1] and out[1].tolist() == [2.0, 3.0, 4.0, 5.0]
    with pytest.raises(RuntimeError, match="'devices' must not be specified when 'out'"):
        comm.scatter(dt.arange(6.0), [0, 1], out=out)
    with pytest.raises(RuntimeError, match="'chunk_sizes' must not be specified when 'out'"):
        comm.scatter(dt.arange(6.0), chunk_sizes=[2, 4], out=out)


def test_pieces_are_joined_again():
    x = dt.arange(6.0).reshape(2, 3)
    pieces = comm.scatter(x, [0, 1], dim=1)
    for where, kind in ((None, "cuda"), (1, "cuda"), (-1, "cpu"), ("cpu", "cpu")):
        whole = comm.gather(pieces, 1, where)
        assert whole.tolist() == x.tolist() and whole.device.type == kind
    out = dt.zeros(2, 3, device="cuda:1")
    assert comm.gather(pieces, 1, out=out) is out and out.tolist() == x.tolist()
    with pytest.raises(RuntimeError, match="'destination' must not be specified when 'out'"):
        comm.gather(pieces, 1, 0, out=out)
    with pytest.raises(ShapeError, match=r"out of shape \[2, 2, 3\] given; .* \[2, 3\]"):
        comm.gather(pieces, 1, out=dt.zeros(2, 2, 3))


def test_gradients_go_back_over_the_devices():
    x = dt.arange(4.0, requires_grad=True)
    a, b = comm.scatter(x, [0, 1])
    comm.gather((a * 2, b * 3), destination="cpu").sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 3.0, 3.0]


def test_devices_that_are_not_there():
    with pytest.raises(DeviceError, match="invalid device ordinal; there are 2"):
        comm.broadcast(dt.ones(1), [2])
