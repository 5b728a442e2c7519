"""Sensors of devices by NVML's stand-in; waits that the program wants to be told of."""

import os
import subprocess
import sys

import pytest
from standins import nvml as nvml_standin

import disttrain as dt
from disttrain import cuda
from disttrain.errors import ConfigError, DeviceError

PROGRAM = """
from disttrain.cuda import sensors
sensors.index_of = lambda device: device
print(*[f(d) for d in (0, 1) for f in (sensors.utilization, sensors.memory_usage,
      sensors.temperature, sensors.power_draw, sensors.clock_rate)])
"""


def test_sensors_are_those_of_the_devices_that_a_process_sees():
    env = {**os.environ, **nvml_standin.environment("hgx"), "CUDA_VISIBLE_DEVICES": "3,1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=50
    )
    assert done.stdout.split() == "43 7 53 300003 1900 41 7 51 300001 1900".split(), done.stderr


def test_without_the_library(double):
    with pytest.raises(DeviceError, match="temperature: cuda:0: the driver's library NVML"):
        cuda.temperature()


def test_waits_are_told(double):
    x = dt.ones(3, device="cuda")
    assert cuda.get_sync_debug_mode() == 0
    try:
        cuda.set_sync_debug_mode("warn")
        assert cuda.get_sync_debug_mode() == 1
        for wait in (lambda: x.sum().item(), x.cpu, lambda: bool(x[0] > 0), dt.ones(2).cuda):
            with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
                wait()
        cuda.set_sync_debug_mode(2)
        with pytest.raises(RuntimeError, match="a copy to the host"):
            x.tolist()
        (x * 2 + x.sum()).to("cpu", non_blocking=True)
        cuda.synchronize()
        with pytest.raises(ConfigError, match="expected one of"):
            cuda.set_sync_debug_mode("loud")
    finally:
        cuda.set_sync_debug_mode(0)
    assert x.tolist() == [1.0] * 3
