"""Programs that end while CPython, machine code and other threads still hold what was made.

Each runs with an allocator that overwrites what is given back, so that what is read afterwards
shows: with the usual one such a death comes once in many runs. Debug allocators hide it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.ranks import free_port

ROOT = Path(__file__).parents[2]

TRAINING = """
import disttrain as dt
from disttrain import nn
import disttrain.nn.functional as F

model = nn.Linear(8, 8)
optimizer = dt.optim.AdamW(model.parameters())
F.gelu(model(dt.ones(4, 8))).sum().backward()
optimizer.step()
"""

# Of several ranks. What each makes is there to the end, and nothing is closed.
GROUP = """
from disttrain import distributed as dist
dist.init_process_group()
"""

PROGRAMS = {
    "training": TRAINING,
    "allocating at the end": TRAINING
    + """
class Late:
    def __del__(self):
        self.made = [bytes(n) for n in range(2000)]

late = Late()
late.itself = late
sys_late = Late()
__import__("sys").late = sys_late
""",
    "compiled": TRAINING
    + """
step = dt.compile(lambda x: F.gelu(model(x)).sum())
kept = [step(dt.ones(4, 8)), step(dt.ones(4, 8))]
""",
    "threads in kernels": """
import threading, time
import numpy as np
import disttrain as dt
import disttrain.nn.functional as F
from disttrain.backends.llvm.checksum import crc32c_blocks

def forever(work):
    work()
    ready.release()
    while True:
        work()

def in_small(x=dt.ones(64)):
    F.gelu(x)

def in_large(x=dt.ones(1 << 20)):  # without the GIL
    F.gelu(x)

def in_checksum(data=np.zeros(1 << 22, np.uint8)):
    crc32c_blocks(data)

ready = threading.Semaphore(0)
for work in (in_small, in_large, in_large, in_checksum, in_checksum):
    threading.Thread(target=forever, args=(work,), daemon=True).start()
for _ in range(5):
    ready.acquire()
""",
    "boards and maps": TRAINING
    + """
import pathlib, tempfile, threading
from disttrain import board
from disttrain.board.server import Board, listen, serve

folder = pathlib.Path(tempfile.mkdtemp())
ready = threading.Event()
threading.Thread(
    target=serve, args=(Board(folder), listen("127.0.0.1", 0), lambda at: ready.set()), daemon=True
).start()
ready.wait()
dt.save(model.state_dict(), folder / "model")
mapped = dt.load(folder / "model", mmap=True)
shared = dt.ones(1000).share_memory_()

def read():
    while True:
        sum(float(x.sum()) for x in mapped.values()) + float(shared.sum())

threading.Thread(target=read, daemon=True).start()
""",
    "loader": """
import threading
import disttrain as dt
from disttrain.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(dt.randn(512, 64)), batch_size=4, num_workers=2,
                    persistent_workers=True)
batches = iter(loader)
kept = [next(batches) for _ in range(3)]
""",
}

RANKS = {
    "threads in collectives": GROUP
    + """
import threading
import disttrain as dt

large, small = dt.ones(1 << 20), dt.ones(4)
groups = [dist.new_group(), dist.new_group()]

def forever(x, group):
    while True:
        dist.all_reduce(x, group=group)

dist.all_reduce(large)
for x, group in zip((large, small), groups):
    threading.Thread(target=forever, args=(x, group), daemon=True).start()
dist.barrier()
""",
    "work in flight": GROUP
    + """
import disttrain as dt
xs = [dt.ones(1 << 16) for _ in range(8)]
dist.all_reduce(xs[0])
works = [dist.all_reduce(x, async_op=True) for x in xs]
""",
    "data parallel": TRAINING
    + GROUP
    + """
from disttrain.distributed.ddp import DistributedDataParallel
parallel = DistributedDataParallel(nn.Linear(8, 8))
F.gelu(parallel(dt.ones(4, 8))).sum().backward()
""",
}

WORKERS = (
    TRAINING
    + """
import os, time
from pathlib import Path
from disttrain import rpc

rank = int(os.environ["RANK"])
options = rpc.TensorPipeRpcBackendOptions(transports=os.environ["WAY"].split(), tls=False)
rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=options)
there = rpc.remote(1 - rank, dt.ones, (1000,))
kept = [there.to_here(), rpc.rpc_async(1 - rank, dt.ones, (1 << 18,))]
kept[1].wait()
done = Path(os.environ["DONE"])
(done / str(rank)).touch()
while len(list(done.iterdir())) < 2:
    time.sleep(0.01)
"""
)


def environment(tcache: int, **more: str) -> dict[str, str]:
    """Freed memory is overwritten; ``tcache``: blocks of a size that are kept aside for reuse."""
    return os.environ | {
        "PYTHONMALLOC": "malloc",
        "MALLOC_PERTURB_": "255",
        "GLIBC_TUNABLES": f"glibc.malloc.tcache_count={tcache}",
        "PYTHONPATH": str(ROOT),
    } | more  # fmt: skip


def start(program: str, env: dict[str, str]) -> subprocess.Popen[str]:
    kinds = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-c", program], env=env, **kinds)


def ends_well(processes: list[subprocess.Popen[str]]) -> None:
    said = [process.communicate(timeout=60)[0] for process in processes]
    codes = [process.returncode for process in processes]
    assert codes == [0] * len(codes), f"{[_named(code) for code in codes]}: {said}"


def _named(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else str(code)


@pytest.mark.parametrize("tcache", [0, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends(name, tcache):
    ends_well([start(PROGRAMS[name], environment(tcache)) for _ in range(2)])


def pair(program: str, tcache: int, **more: str) -> list[subprocess.Popen[str]]:
    """Two ranks of a program."""
    at = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", **more}
    return [start(program, environment(tcache, RANK=str(r), **at)) for r in range(2)]


@pytest.mark.parametrize("tcache", [0, 2])
@pytest.mark.parametrize("name", RANKS)
def test_ranks_end(name, tcache):
    ends_well(pair(RANKS[name], tcache))


@pytest.mark.parametrize("way", ["local", "grpc"])
def test_workers_end(way, tmp_path):
    """... with their endpoints open."""
    for tcache in (0, 2):
        done = tmp_path / str(tcache)
        done.mkdir()
        ends_well(pair(WORKERS, tcache, WAY=way, DONE=str(done)))
