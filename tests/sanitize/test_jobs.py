"""``dtrun --sanitize``: ranks of real processes, and what the job shows."""

from __future__ import annotations

import re

from support.dtrun import dtrun


def test_a_job_tells_once_what_all_ranks_find(tmp_path):
    report = tmp_path / "found.jsonl"
    flags = ("--as-torch", "--nproc-per-node", "2", "--sanitize", "--sanitize-report")
    done = dtrun(tmp_path, PROGRAM, *flags, str(report))
    assert done.code == 0, done.err
    told = re.findall(r"error: gradients-never-zeroed: ", done.err)
    assert len(told) == 1, done.err
    assert "script.py:10" in done.err and "1 error" in done.err
    assert len(report.read_text().splitlines()) == 2  # one of each rank


def test_a_job_with_chosen_kinds(tmp_path):
    done = dtrun(tmp_path, PROGRAM, "--as-torch", "--nproc-per-node", "2", "--sanitize=warning")
    assert done.code == 0 and "sanitize" not in done.err


PROGRAM = """
import torch.distributed as dist, torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(6):
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""
