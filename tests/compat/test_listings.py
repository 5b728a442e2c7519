"""Programs as people of PyTorch, JAX and TensorFlow write them, under those names: each prints what
it prints under the real library (recorded beside it, with torch 2.13.0, jax 0.10.2 and tensorflow
2.21.0)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
JAX, TENSORFLOW = "disttrain.compat.jax", "disttrain.compat.tensorflow"
TORCH = "disttrain.compat.torch"
ALONE = {
    "jax/transforms": [JAX],
    "jax/pmap_step": [JAX, "--simulate", "8"],
    "jax/sharding": [JAX, "--simulate", "8"],
    "torch/jit": [TORCH],
    "torch/export": [TORCH],
    "torch/onnx_export": [TORCH],
    "tensorflow/tape": [TENSORFLOW],
    "tensorflow/function": [TENSORFLOW],
    "tensorflow/data": [TENSORFLOW],
    "tensorflow/mirrored": [TENSORFLOW],
    "tensorflow/saved_model": [TENSORFLOW],
    "tensorflow/keras_fit": [TENSORFLOW],
}


def printed(folder, *words):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("name", ALONE)
def test_a_listing_prints_what_the_real_library_prints(tmp_path, name):
    if name.endswith("keras_fit") and importlib.util.find_spec("keras") is None:
        pytest.skip("Keras is an extra of its own")
    program = PROGRAMS / f"{name}.py"
    found = printed(tmp_path, *ALONE[name], str(program))
    assert found == program.with_suffix(".txt").read_text()


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_parallel_step_of_jax_over_ranks(tmp_path, ranks):
    words = ["disttrain_launcher", "--as-jax", "--nproc-per-node", str(ranks)]
    found = printed(tmp_path, *words, str(PROGRAMS / "jax/pmap_step.py"))
    assert found.count(f"devices {ranks} 1 {ranks}") == ranks
    assert found.count("equal to one device True (1,)") == ranks


def test_the_mirrored_step_of_tensorflow_over_ranks(tmp_path):
    words = ["disttrain_launcher", "--as-tensorflow", "--nproc-per-node", "2"]
    found = printed(tmp_path, *words, str(PROGRAMS / "tensorflow/mirrored.py"))
    assert found.count("replicas 2") == 2
    assert found.count("fitted [1.0, -2.0, 3.0, 0.5] [0.25]") == 2
