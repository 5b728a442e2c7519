"""Programs that are recorded and replayed: drawn from parts by a number, each with collectives of
every kind, and the commands that do it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

HEAD = """
import os, random, threading
import numpy as np
import disttrain as dt, disttrain.distributed as dist
import disttrain.nn.functional as F
from disttrain import nn
from disttrain.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from disttrain.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from disttrain.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group({backend})
rank, world = dist.get_rank(), dist.get_world_size()

class Net(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, wide), nn.Linear(wide, wide), nn.Linear(wide, 3)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return self.c(self.drop(F.relu(self.b(F.relu(self.a(x))))))

def train(net, steps):
    opt = dt.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(steps):
        x, y = dt.randn(5, 4), dt.randint(0, 3, (5,))
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
"""
PARTS = {
    "ddp": "train(DDP(Net({wide}), bucket_cap_mb={cap}), {steps})",
    "flat": "train(FSDP(Net({wide})), {steps})",
    "fully": "n = Net({wide})\nfor m in (n.a, n.b, n): fully_shard(m)\ntrain(n, {steps})",
    "accumulate": """
net = DDP(Net({wide}))
with net.no_sync():
    net(dt.randn(2, 4)).sum().backward()
net(dt.randn(2, 4)).sum().backward()
print(float(net.module.a.weight.grad.sum()))""",
    "pipeline": """
part = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
stage = PipelineStage(part, rank, world, dt.device("cpu"))
run = {schedule}(stage, n_microbatches=2, loss_fn=lambda o, t: ((o - t) ** 2).mean())
if world == 1: run.step(dt.randn(4, 4), target=dt.randn(4, 4), losses=[])
elif rank == 0: run.step(dt.randn(4, 4))
elif rank == world - 1: run.step(target=dt.randn(4, 4), losses=[])
else: run.step()""",
    "groups": """
pairs = [dist.new_group([r for r in range(world) if r % 2 == k]) for k in range(2)]
t = dt.randn(3)
dist.all_reduce(t, group=pairs[rank % 2])
alone = dist.new_group([rank], use_local_synchronization=True)
dist.broadcast(t, rank, group=alone)
mesh = dist.init_device_mesh("cpu", (world,))
dist.all_reduce(t, group=mesh.get_group(0))""",
    "collectives": """
t = dt.randn({wide}).to(dt.{dtype})
dist.all_reduce(t)
dist.broadcast(t, {root} % world)
outs = [dt.zeros({wide}, dtype=dt.{dtype}) for _ in range(world)]
dist.all_gather(outs, t)
dist.reduce_scatter(t, outs)
dist.reduce(t, {root} % world)
dist.gather(t, outs if rank == {root} % world else None, dst={root} % world)
dist.scatter(t, outs if rank == {root} % world else None, src={root} % world)
dist.all_to_all(outs, [o * 2 for o in outs])
dist.all_to_all_single(dt.zeros(world), dt.arange(world).float())
works = [dist.all_reduce(dt.randn(2), async_op=True) for _ in range(3)]
[w.wait() for w in reversed(works)]
dist.all_reduce(dt.zeros(0)); dist.all_reduce(dt.tensor(1.0)); dist.barrier()
w = dist.all_reduce(dt.ones(1), async_op=True)
while not w.is_completed(): pass""",
    "messages": """
got = dt.zeros(3)
ops = [dist.P2POp(dist.isend, dt.randn(3), (rank + 1) % world),
       dist.P2POp(dist.irecv, got, (rank - 1) % world)]
[w.wait() for w in dist.batch_isend_irecv(ops)]
if rank == 0: print([dist.recv(got) for _ in range(world - 1)])
else: dist.send(dt.randn(3), 0)""",
    "objects": """
every = [None] * world
dist.all_gather_object(every, {{"rank": rank, "x": np.arange(rank + 1)}})
several = [random.random(), rank]
dist.broadcast_object_list(several, {root} % world)
print(every, several, np.random.rand())""",
    "threads": """
groups = [dist.new_group() for _ in range(2)]
def body(i):
    t = dt.ones(2) * (rank + i)
    for _ in range(3): dist.all_reduce(t, group=groups[i])
threads = [threading.Thread(target=body, args=(i,)) for i in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]""",
    "checkpoint": """
import disttrain.distributed.checkpoint as dcp
for i in range(2): dcp.save({{"w": dt.rand({wide}), "step": i}}, checkpoint_id="ck")
got = {{"w": dt.zeros({wide}), "step": 0}}
dcp.load(got, checkpoint_id="ck")
print(len(os.listdir("ck")), got)""",
    "loader": """
data = dt.data.TensorDataset(dt.randn(8, 4))
for (x,) in dt.data.DataLoader(data, batch_size=3, shuffle=True): dist.all_reduce(x.sum())""",
}  # fmt: skip

RPC = """
import os
import disttrain as dt
from disttrain.distributed import rpc
import disttrain.distributed.autograd as dist_autograd

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
total = dt.zeros(3)

def add(x, y):
    return x + y

def push(g):
    global total
    total = total * 0.5 + g
    return total.clone()

class Kept:
    def __init__(self):
        self.t = dt.ones(2)

    def bump(self, x):
        self.t = self.t * 2 + x
        return self.t

rpc.init_rpc(f"w{rank}", rank=rank, world_size=world)
peer = f"w{(rank + 1) % world}"
print([f.wait().tolist() for f in [rpc.rpc_async(peer, add, (dt.rand(2), i)) for i in range(4)]])
print([rpc.rpc_sync("w0", push, (dt.rand(3),)).tolist() for _ in range(3)])
far = rpc.remote(peer, Kept)
print([far.rpc_sync().bump(i).tolist() for i in range(3)])
a, b = dt.rand(2, requires_grad=True), dt.rand(2, requires_grad=True)
with dist_autograd.context() as number:
    dist_autograd.backward(number, [rpc.rpc_sync(peer, add, (a * 2, b * b)).sum()])
    print([g.tolist() for g in dist_autograd.get_gradients(number).values()])
try:
    rpc.rpc_sync(peer, add, (1, "a"))
except TypeError:
    print("refused")
rpc.shutdown()
"""


def drawn(seed: int, first: list[str]) -> str:
    """The text of a program that begins with the parts ``first``."""
    draw = random.Random(seed)
    words = {
        "wide": draw.choice([3, 8, 17]), "steps": draw.choice([1, 2, 3]), "root": draw.randrange(4),
        "cap": draw.choice([0.0005, 1, 25]),
        "schedule": draw.choice(["ScheduleGPipe", "Schedule1F1B"]),
        "dtype": draw.choice(["float32", "float64", "bfloat16", "float16", "int32"]),
    }  # fmt: skip
    backend = draw.choice(["", "", '"tcp"'])
    more = draw.sample([p for p in PARTS if p not in first], 2 - len(first) // 2)
    parts = [PARTS[name].format(**words).strip() for name in (*first, *more)]
    seeded = draw.choice(["", f"dt.manual_seed({seed} + rank)\n"])
    end = 'print("drawn", float(dt.rand(1)))\ndist.destroy_process_group()\n'
    return HEAD.format(backend=backend) + seeded + "\n".join(parts) + "\n" + end


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a command whose key lies in ``folder``."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "DISTTRAIN"))}
    return env | {
        "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(folder / "key"),
        "TMPDIR": str(folder), **more,
    }  # fmt: skip


def record(
    folder: Path, text: str, *flags: str, ranks: int = 2, name: str = "train.py",
    fails: bool = False, how: tuple[str, ...] = (),
) -> str:  # fmt: skip
    """Record a program into ``folder/run``: what it says. ``how`` it runs, if not as ``ranks``
    processes."""
    (folder / name).write_text(text)
    words = [sys.executable, "-m", "disttrain_launcher"]
    words += [
        *(how or ("--nproc-per-node", str(ranks))),
        "--record",
        "run",
        "--record-payloads",
        *flags,
        name,
    ]
    done = subprocess.run(
        words, cwd=folder, env=environment(folder), text=True, capture_output=True, timeout=100,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert bool(done.returncode) == fails, done.stderr
    return done.stdout


def start_replay(folder: Path, *words: str, **env: str) -> subprocess.Popen:
    """``disttrain replay ...`` in ``folder``."""
    return subprocess.Popen(
        [sys.executable, "-m", "disttrain.cli", "replay", *words], cwd=folder, text=True,
        env=environment(folder, **env), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def replay(folder: Path, *words: str, typed: str = "", **env: str) -> tuple[int, str, str]:
    """(exit code, output, errors) of a replay; ``typed``: for the debugger."""
    done = start_replay(folder, *words, **env)
    out, errors = done.communicate(typed, timeout=100)
    return done.returncode, out, errors


def said_by(rank: int, out: str) -> str:
    """What a rank printed, of the launcher's output."""
    front = f"[rank {rank}] "
    return "".join(f"{x[len(front) :]}\n" for x in out.splitlines() if x.startswith(front))
