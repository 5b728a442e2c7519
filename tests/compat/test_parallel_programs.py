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


@pytest.mark.parametrize("start", ["--nproc-per-node", "--simulate"])
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
def test_program(tmp_path, name, ranks, said, start):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for unwanted in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        env.pop(unwanted, None)
    program, *args = name.split()
    command = [sys.executable, "-m", "disttrain_launcher", "--as-torch", start, str(ranks)]
    command += [str(PROGRAMS / f"{program}.py"), *args]
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for line, times in said.items():
        assert done.stdout.count(line) == times, done.stdout + done.stderr


# Every module of the stand-in is asked for all of its names by each rank, in an order of its own.
FACES = """
import os, random, sys
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
names = sorted(n for n in sys.modules if n == "torch" or n.startswith("torch."))
random.Random(rank).shuffle(names)
have = {name: dir(sys.modules[name]) for name in names}
for name in have:
    for each in have[name]:
        getattr(sys.modules[name], each, None)
dist.init_process_group()
have = {name: dir(sys.modules[name]) for name in sorted(have)}
found = [None] * dist.get_world_size()
dist.all_gather_object(found, [[name, *have[name]] for name in have])
for name in range(len(have)):
    assert all(each[name] == found[0][name] for each in found), found[0][name][0]
print("alike", len(have), sum(map(len, have.values())))
"""


def test_every_simulated_rank_finds_every_name(tmp_path):
    script = tmp_path / "faces.py"
    script.write_text(FACES)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "disttrain_launcher",
        "--as-torch",
        "--simulate",
        "3",
        str(script),
    ]
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0 and done.stdout.count("alike") == 3, done.stdout + done.stderr
    modules, names = map(int, done.stdout.split("alike ")[1].split("\n")[0].split())
    assert modules > 100 and names > 2000, done.stdout
