"""Folders that PyTorch's distributed checkpoints have written are read here, value by value."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

import disttrain as dt
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint import format_utils, tools

KINDS = """float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128
float8_e4m3fn float8_e5m2""".split()

RANK = """
import sys, warnings
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor, Replicate, Shard
from torch.distributed.fsdp import fully_shard
from torch.distributed.checkpoint.state_dict import get_state_dict
warnings.simplefilter("ignore")
out, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{out}.meet", rank=rank, world_size=world)
mesh = init_device_mesh("cpu", (world,))
torch.manual_seed(0)
full = {"rows": torch.randn(7, 3), "columns": torch.randn(2, 5), "whole": torch.randn(4),
        "few": torch.randn(1, 3)}
how = {"rows": Shard(0), "columns": Shard(1), "whole": Replicate(), "few": Shard(0)}
state = {k: distribute_tensor(v, mesh, [how[k]]) for k, v in full.items()}
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 2, bias=False))
for part in (*model, model):
    fully_shard(part, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
model(torch.ones(2, 5)).sum().backward()
optimizer.step()
values, states = get_state_dict(model, optimizer)
dcp.save({"t": state, "model": values, "optim": states, "step": 3}, checkpoint_id=out)
if rank == 0:
    whole = lambda v: v.full_tensor() if hasattr(v, "full_tensor") else v
else:
    whole = lambda v: v.full_tensor() if hasattr(v, "full_tensor") else v
def told(x):
    return {k: told(v) for k, v in x.items()} if isinstance(x, dict) else whole(x)
kept = told({"t": state, "model": values, "optim": states, "step": 3})
if rank == 0:
    torch.save(kept, out + ".pt")
dist.barrier()
dist.destroy_process_group()
"""


def same(found, wanted, at=""):
    if isinstance(wanted, dict):
        assert {str(k) for k in found} == {str(k) for k in wanted}, at
        by_name = {str(k): v for k, v in found.items()}
        for key, value in wanted.items():
            same(by_name[str(key)], value, f"{at}.{key}")
    elif isinstance(wanted, dt.Tensor):
        assert found.dtype is wanted.dtype and found.shape == wanted.shape, at
        assert found.detach().array.tobytes() == wanted.detach().array.tobytes(), at
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for i, (x, y) in enumerate(zip(found, wanted, strict=True)):
            same(x, y, f"{at}[{i}]")
    else:
        assert found == wanted, at


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_values_of_all_kinds(tmp_path):
    import torch
    import torch.distributed.checkpoint as theirs

    path = tmp_path / "c"
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    model(torch.randn(6, 4)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(), "optim": optimizer.state_dict(),
        "epoch": 3, "text": "ä", "none": None, "tuple": (1, "a", 2.5),
        "list": [torch.ones(2), {"a": 1, "b": [torch.zeros(1)]}], 5: torch.eye(2), "nan": math.inf,
        "view": torch.arange(12.0).reshape(3, 4).t()[1:], "number": torch.tensor(3.5),
        "nothing": torch.zeros(0, 3), "parameter": torch.nn.Parameter(torch.ones(2)),
        **{kind: torch.arange(6).reshape(2, 3).to(getattr(torch, kind)) for kind in KINDS},
    }  # fmt: skip
    theirs.save(state, checkpoint_id=path)
    torch.save(state, tmp_path / "c.pt")
    same(tools.values(str(path)), dt.load(tmp_path / "c.pt"))
    assert tools.verify(str(path))[1] == []


@pytest.mark.peer
def test_what_ranks_have_sharded(tmp_path):
    path = tmp_path / "c"
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(path), str(rank), "3"])
        for rank in range(3)
    ]
    assert [rank.wait(300) for rank in ranks] == [0, 0, 0]
    wanted = dt.load(tmp_path / "c.pt")
    same(tools.values(str(path)), wanted)
    assert tools.summary(str(path)).world_size == 3
    state = {"t": {"rows": dt.zeros(7, 3)}, "step": 0}
    dcp.load(state, checkpoint_id=path)
    same(state, {"t": {"rows": wanted["t"]["rows"]}, "step": 3})
    format_utils.import_files(path, tmp_path / "ours")
    same(tools.values(str(tmp_path / "ours")), wanted)
