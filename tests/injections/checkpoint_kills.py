#!/usr/bin/env python3
"""Kill ranks while they save, again and again, and look at what a resumed job would find.

    python tests/injections/checkpoint_kills.py --kills 200

Each trial starts ranks that save without pause: over the same name, or under a new one each time,
plainly or in the background. After a random time one of them, or all, get SIGKILL. Then the
checkpoint must be whole, of one step, and of no earlier one than the last that a rank was told is
saved; and the ranks of the next trial, of which there may be another number, go on from it in the
same folder.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint import tools
from disttrain.distributed.checkpoint.files import folder
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Replicate, Shard, distribute_tensor

ROWS = 4096
MODES = ("same", "new", "async")


def state(step: int) -> dict:
    """What is saved at ``step``: sharded, replicated, and no tensor; all of it says the step."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {
        "sharded": distribute_tensor(dt.full((ROWS, 8), float(step)), mesh, [Shard(0)]),
        "copied": distribute_tensor(dt.full((1000,), float(step)), mesh, [Replicate()]),
        "plain": dt.full((500,), float(step)),
        "step": step,
    }


def save_without_pause(
    where: Path, mode: str, meet: str, rank: int, ranks: int, step: int, pipe: int
) -> None:
    """One rank's life. Rank 0 tells of every step that is saved."""
    dist.init_process_group(init_method=f"file://{meet}", rank=rank, world_size=ranks, timeout=20)
    while True:
        step += 1
        target = where / (f"step_{step:06d}" if mode == "new" else "last")
        if mode == "async":
            dcp.async_save(state(step), checkpoint_id=target).result()
        else:
            dcp.save(state(step), checkpoint_id=target)
        if rank == 0:
            os.write(pipe, step.to_bytes(8, "little"))


def newest(where: Path) -> int:
    """The step of the newest checkpoint; all that are there are read and must be whole."""
    steps = [0]
    for path in tools.find(str(where)):
        if not os.path.exists(os.path.join(path, folder.MANIFEST)):
            continue
        _, wrong = tools.verify(path)
        assert not wrong, wrong
        got = tools.values(path)
        for name in ("sharded", "copied", "plain"):
            assert (got[name] == got["step"]).all(), f"{path}: {name} is of another step"
        steps.append(got["step"])
    return max(steps)


def trial(where: Path, mode: str, chance: random.Random, step: int) -> tuple[int, int]:
    """Start, kill, look. The step that is found, and the number of ranks."""
    ranks = chance.choice((1, 2, 3))
    read, write = os.pipe()
    meet = os.path.join(tempfile.mkdtemp(prefix="meet-", dir=where.parent), "store")
    pids = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _child(where, mode, meet, rank, ranks, step, write)
        pids.append(pid)
    os.close(write)
    os.read(read, 8)  # the first save is done
    time.sleep(chance.random() * 0.06)
    victims = pids if chance.random() < 0.5 else [chance.choice(pids)]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    time.sleep(0 if victims is pids else 0.03 * chance.random())
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    told = _last(read) or step + 1
    os.close(read)
    found = newest(where)
    assert found >= told, f"step {told} was saved, and {found} is the newest"
    if mode == "new":
        _keep_two(where)
    return found, ranks


def _child(*arguments) -> None:
    try:
        context.begin_anew()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # peers of the killed one say so
        save_without_pause(*arguments)
    finally:
        os._exit(1)


def _last(pipe: int) -> int:
    data = b""
    while more := os.read(pipe, 1 << 16):
        data += more
    return int.from_bytes(data[-8:], "little")


def _keep_two(where: Path) -> None:
    for path in sorted(where.iterdir())[:-2]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()


def run(kills: int, seed: int, base: Path) -> dict[str, int]:
    """All trials; how many steps each way of saving got to."""
    chance = random.Random(seed)
    steps = dict.fromkeys(MODES, 0)
    for k in range(kills):
        mode = MODES[k % len(MODES)]
        where = base / mode
        where.mkdir(exist_ok=True)
        steps[mode], _ = trial(where, mode, chance, steps[mode])
    for mode in MODES[: min(kills, len(MODES))]:
        last = tools.find(str(base / mode))[-1]
        dcp.save({"done": True}, checkpoint_id=last)  # collects what the kills left there
        assert folder.leftovers(last, tools.read_manifest(last).files) == []
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as base:
        steps = run(options.kills, options.seed, Path(base))
    told = ", ".join(f"{mode}: {n} saves" for mode, n in steps.items())
    print(f"{options.kills} kills lost nothing ({told}; {time.monotonic() - begin:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
