"""Programs that train with FSDP, as tutorials for PyTorch write them, unchanged under its name: the
composable form, and the class, which PyTorch itself refuses on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("start", ["--nproc-per-node", "--simulate"])
@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("fsdp2_transformer", [], {"resumed alike": 2}),
        ("fsdp2_transformer", ["--mixed-precision", "--explicit-prefetching"],
         {"resumed alike": 2}),
        ("dcp_resume", [], {"resumed alike: True": 4, "refused: True": 2,
                            "whole: torch.Size([33, 16])": 1}),
        ("fsdp1_mnist", [], {"FULL_SHARD saved and loaded alike": 1, "64/64 (100.00%)": 2}),
        ("fsdp1_mnist", ["--strategy", "SHARD_GRAD_OP", "--offload"],
         {"SHARD_GRAD_OP saved and loaded alike": 1, "64/64 (100.00%)": 2}),
    ],
)  # fmt: skip
def test_program(tmp_path, name, words, said, start):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for unwanted in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        env.pop(unwanted, None)
    command = [sys.executable, "-m", "disttrain_launcher", "--as-torch", start, "2"]
    done = subprocess.run(
        [*command, str(PROGRAMS / f"{name}.py"), *words],
        env=env, cwd=tmp_path, capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for text, times in said.items():
        assert done.stdout.count(text) >= times, done.stdout + done.stderr
