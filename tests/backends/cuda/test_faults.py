"""Why there is no device, and errors that come later."""

import os

import numpy as np
import pytest
from standins.cupy import CUDARuntimeError, Cupy

from disttrain.backends.cuda import platform as cuda_platform
from disttrain.backends.cuda.faults import at_start, explained
from disttrain.backends.cuda.platform import CudaPlatform
from disttrain.backends.cuda.presence import Presence
from disttrain.errors import DeviceError


@pytest.fixture
def cupy():
    return Cupy()


@pytest.fixture
def cuda(cupy):
    return CudaPlatform(cupy)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fail": 35, "driver": 0}, "no NVIDIA driver"),
        ({"fail": 35, "driver": 12080}, "driver here is for CUDA 12.8, .* needs 13.0"),
        ({"fail": 100}, "sees no NVIDIA device"),
        ({"fail": 803}, "reboot"),
        ({"fail": 3}, "Cannot re-initialize CUDA in forked subprocess"),
    ],
)
def test_why_there_is_none(settings, words, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(DeviceError, match=words):
        CudaPlatform(Cupy(**settings))


def test_errors_that_come_later_are_said_in_full(cuda, cupy):
    cupy.cuda.fail = 700
    with pytest.raises(DeviceError, match="CUDA_LAUNCH_BLOCKING=1"):
        cuda.synchronize()
    assert "nvidia-smi" in str(explained(CUDARuntimeError(46)))
    assert isinstance(at_start(CUDARuntimeError(802), cupy.cuda.runtime), DeviceError)


def test_the_package_is_missing(monkeypatch):
    monkeypatch.setattr(cuda_platform, "look", lambda: Presence(0, sure=False))
    monkeypatch.setattr(cuda_platform, "_PACKAGE", "no_such_package")
    with pytest.raises(DeviceError, match=r"pip install 'disttrain\[cuda13\]'"):
        cuda_platform.start()


def test_a_child_says_that_it_was_forked(cuda):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            cuda.empty((1,), np.float32)
        except DeviceError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        assert "Cannot re-initialize CUDA in forked subprocess" in said.read()
    os.waitpid(child, 0)
    assert cuda.empty((1,), np.float32).data.ptr
