"""The device that a part works on: the real one, or the stand-in of the tests."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

import disttrain as dt
from disttrain.backends.device import platform as places
from disttrain.errors import DeviceError

from ..journal import Job, Skip


class Uncounted:
    """Stands for the counts that the stand-in keeps: a real device keeps none."""

    transfers, waits = 0, ()

    def clear(self) -> None:
        """Nothing to clear."""


class Real:
    """The real platform, as the tests' rules see one."""

    def __init__(self, platform: Any) -> None:
        self.platform, self.counts = platform, Uncounted()

    def download(self, raw: Any) -> np.ndarray:
        return self.platform.download(raw)


def settle(job: Job) -> Any:
    """Offer the stand-in where it is asked for; what gives the part's ``platform``. Starts no
    device: who forks calls it before."""
    if not job.real:
        double = importlib.import_module("standins.device_double.double").DoublePlatform(2)
        binding = importlib.import_module("standins.nccl.binding")
        double.binding = binding.StandIn(double)
        places.offer("cuda", lambda: double)
    return double if not job.real else None


def start(job: Job) -> Any:
    """The platform, started; the job learns how to see that the device still answers."""
    settle(job)
    try:
        platform = places.platform("cuda")
    except DeviceError as error:
        if job.real:  # the driver told of a device, so this is a failure
            raise
        raise Skip(str(error)) from None
    job.healthy = lambda: _answers(platform)
    return platform if not job.real else Real(platform).platform


def ruled(job: Job, platform: Any) -> Any:
    """The platform with counts, as ``support.cases.device_table`` wants it."""
    return Real(platform) if job.real else platform


def _answers(platform: Any) -> None:
    """Raise where the device does not wait and copy any more, as after a kernel that went astray.
    No more is asked of it: a kernel or product that is wrong is a failure of its case, and the
    others go on in this process."""
    platform.synchronize()
    sent = np.arange(4.0)
    if (platform.download(platform.upload(sent, 0)) != sent).any():
        raise RuntimeError("numbers that were copied there do not come back")


def with_graphs(cuda: Any) -> None:
    """Pass over a case where work cannot be recorded."""
    if not hasattr(cuda, "CUDAGraph"):
        raise Skip("dt.cuda records no graphs")
    try:
        places.platform("cuda").graph()
    except DeviceError as error:
        raise Skip(str(error)) from None


def same(got: Any, want: Any, tolerance: float) -> float:
    """The greatest difference, over the greatest size, of tensors or arrays; raises beyond
    ``tolerance``."""
    mine, theirs = (np.asarray(t.detach().cpu().float().numpy() if isinstance(t, dt.Tensor) else t)
                    for t in (got, want))  # fmt: skip
    if mine.shape != theirs.shape:
        raise AssertionError(f"shapes {mine.shape} and {theirs.shape}")
    if not mine.size:
        return 0.0
    mine, theirs = mine.astype(np.float64), theirs.astype(np.float64)
    scale = max(float(np.max(np.abs(theirs))), 1e-30)
    off = float(np.max(np.abs(mine - theirs))) / scale
    if not off <= tolerance:
        raise AssertionError(f"differs by {off:.2e} of its size; {tolerance:.0e} is allowed")
    return off
