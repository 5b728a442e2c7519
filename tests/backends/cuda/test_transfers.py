"""Arrays on their way to the device and back."""

import ml_dtypes
import numpy as np
import pytest
from standins.cupy import Cupy

from disttrain.backends.cuda.platform import CudaPlatform
from disttrain.errors import DTypeError


@pytest.fixture
def cupy():
    return Cupy()


@pytest.fixture
def cuda(cupy):
    return CudaPlatform(cupy)


def test_transfers(cuda, cupy):
    host = np.arange(6.0).reshape(2, 3)
    x = cuda.upload(host, 1)
    assert cuda.index_of(x) == 1 and cuda.current() == 0 and not cupy.cuda.log
    assert (cuda.download(x) == host).all()
    turned = np.empty((3, 2)).T
    assert cuda.download(x, turned) is turned and (turned == host).all()
    assert (cuda.download(cuda.upload(host.T, 0)) == host.T).all()
    assert (cuda.download(cuda.upload(host[:, ::2], 0)) == host[:, ::2]).all()
    assert cuda.download(cuda.upload(np.zeros((0, 3)), 0)).shape == (0, 3)


def test_types_that_cupy_has_no_arrays_of(cuda):
    kind = np.dtype(ml_dtypes.float8_e4m3fn)
    for ask in (lambda: cuda.empty((2,), kind), lambda: cuda.upload(np.zeros(2, kind), 0)):
        with pytest.raises(DTypeError, match="float8_e4m3fn was asked for; CuPy has none"):
            ask()


def test_pinned_memory_is_kept_while_it_flies(cuda, cupy):
    page = cuda.pinned((2, 3), np.float32)
    assert page.shape == (2, 3) and cuda.is_pinned(page) and not cuda.is_pinned(np.ones(2))
    cuda.upload(page, 0)
    assert cupy.cuda.log == [("wait", 0)]  # the host may write it again
    cupy.cuda.busy.add(0)
    x = cuda.upload(page, 0, non_blocking=True)
    out = cuda.pinned((2, 3), np.float32)
    cuda.download(x, out, non_blocking=True)
    assert cupy.cuda.log[-1] == ("get", False)
    assert len(cuda.transfers._flying) == 2
    cupy.cuda.busy.clear()
    cuda.upload(page, 0, non_blocking=True)
    assert len(cuda.transfers._flying) == 1
    cuda.download(x, np.empty((2, 3), np.float32), non_blocking=True)
    assert cupy.cuda.log[-1] == ("get", True)


def test_from_device_to_device(cuda, cupy):
    x = cuda.upload(np.ones(4, np.float32), 0)
    y = cuda.move(x, 1)
    assert cuda.index_of(y) == 1 and cuda.move(y, 1) is y
    assert cupy.cuda.log == [
        ("stream waits", 0, 0), ("peer", 1, 0, 16), ("stream waits", 0, 0),
    ]  # fmt: skip
    assert cupy.cuda.peers == {(0, 1), (1, 0)}
    cuda.move(y, 0)
