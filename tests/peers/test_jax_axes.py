"""Programs over named axes (vmap, pmap, shard_map; gradients inside, outside, both) beside JAX,
whose eight devices a process of its own has."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.peer

PROGRAMS = Path(__file__).with_name("jax_axis_programs.py")
FIRST, COUNT = 0, 6


def computed(tmp_path, *words):
    out = tmp_path / "values.pkl"
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    command = [sys.executable, *words, str(PROGRAMS), str(FIRST), str(COUNT), str(out)]
    subprocess.run(command, env=env, check=True, timeout=300, capture_output=True)
    return pickle.loads(out.read_bytes())


def test_they_give_the_same(tmp_path):
    if find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    real = computed(tmp_path)
    ours = computed(tmp_path, "-m", "disttrain.compat.jax")
    assert len(real) == len(ours) == COUNT
    for seed, (a, b) in enumerate(zip(real, ours, strict=True)):
        assert not isinstance(a, str), (seed, a)
        assert not isinstance(b, str), (seed, b)
        assert len(a) == len(b), seed
        for x, y in zip(a, b, strict=True):
            assert x.dtype == y.dtype, seed
            scale = 2e-3 * max(1.0, float(abs(x).max()))
            np.testing.assert_allclose(y, x, rtol=2e-3, atol=scale, err_msg=f"seed {seed}")
