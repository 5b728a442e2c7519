"""Programs with meshes, tensor parallelism, FSDP and pipelines, as tutorials write them, on several
ranks under the name ``torch``. They compare themselves with the plain model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize(
    ("name", "ranks", "said"),
    [
        ("tensor_parallel", 4, {"toy tensor parallel ok": 4, "toy sequence parallel ok": 4,
                                "llama 2-d ok": 4}),
        ("pipeline_gpipe", 2, {"stage 0 ok": 1, "stage 1 ok": 1,
                               "losses: 4, output (32, 20, 50)": 1}),
        ("pipeline_gpipe tracer", 2, {"stage 0 ok": 1, "stage 1 ok": 1}),
        ("fsdp_wrapper", 2, {"FULL_SHARD ok, has part of the parameters": 2}),
    ],
)  # fmt: skip
def test_program(tmp_path, name, ranks, said):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for unwanted in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        env.pop(unwanted, None)
    program, *args = name.split()
    command = [
        sys.executable,
        "-m",
        "disttrain_launcher",
        "--as-torch",
        "--nproc-per-node",
        str(ranks),
    ]
    command += [str(PROGRAMS / f"{program}.py"), *args]
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for line, times in said.items():
        assert done.stdout.count(line) == times, done.stdout + done.stderr
