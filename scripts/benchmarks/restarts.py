"""How long a job stands still when a rank is killed, for both libraries alike."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from typing import Any

from benchmarks.strategies import ddp

RESTART = "restart 4 ranks after a kill, to the next step"


def restart(T: Any) -> dict[str, float]:
    """From the end of a rank that is killed to the next finished step of all 4, restarted from the
    last checkpoint: the model's and the optimizer's state, saved every 10 steps."""
    again = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
    folder = os.path.join(tempfile.gettempdir(), f"restart-{os.environ['TORCHELASTIC_RUN_ID']}")
    os.makedirs(folder, exist_ok=True)
    saved, killed = os.path.join(folder, "saved.pt"), os.path.join(folder, "killed")
    T.distributed.init_process_group("gloo")
    rank = T.distributed.get_rank()
    T.manual_seed(0)
    nn = T.nn
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer, step = T.optim.AdamW(model.parameters()), 0
    if again:
        state = T.load(saved)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    replicas = ddp(T, model)
    first = step
    while step < (first + 1 if again else 1000):
        optimizer.zero_grad()
        replicas(T.ones(16, 256)).square().mean().backward()
        optimizer.step()
        step += 1
        if step % 10 == 0 and rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            T.save({**state, "step": step}, saved)
        if (rank, step) == (1, 35):
            with open(killed, "w") as file:
                file.write(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
    T.distributed.barrier()
    now = time.monotonic()
    assert first == 30
    with open(killed) as file:
        seconds = now - float(file.read())
    T.distributed.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    T.distributed.destroy_process_group()
    return {RESTART: seconds}
