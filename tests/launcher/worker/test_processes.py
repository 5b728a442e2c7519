"""Whatever part of a job is killed, and whenever: the job ends, and nothing is left of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from support.dtrun import Job, below
from support.shm import names

SCRIPT = """
import os, subprocess, threading, time
import numpy as np
from disttrain import context
from disttrain.comm.transports import shm
from disttrain.comm.group.group import ProcessGroup
subprocess.Popen(["sleep", "60"])
threading.Thread(target=time.sleep, args=(60,)).start()
me = context.current()
group = ProcessGroup(shm.connect(me.slots["comm.job"], me.rank, me.world_size))
x = np.ones(4, np.float32)
while True:
    group.all_reduce(x)
"""


def choose(job: Job, draw: random.Random) -> tuple[str, int]:
    """A process of the job: of the launcher, or a rank; the front while there is no other."""
    found = job.launcher()
    ranks = below(found["agent"]) if "agent" in found else []
    what = draw.choice(["front", "warden", "agent", "rank", "rank", "rank"])
    if what == "rank" and ranks:
        return what, draw.choice(ranks)
    what = what if what in found else "front"
    return what, found[what]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_kill_at_any_moment(tmp_path, seed, method):
    draw, named = random.Random(f"{seed} {method}"), names()
    job = Job(tmp_path, SCRIPT, "--nproc-per-node", "3", "--start-method", method)
    time.sleep(draw.uniform(0.0, 1.5))
    victim, pid = choose(job, draw)
    os.kill(pid, signal.SIGKILL)
    ended = job.wait()
    job.all_gone()
    assert ended.code in {"front": (-9,), "rank": (137, 1)}.get(victim, (137,)), ended.err
    assert names() <= named


MISSED = """
import os, subprocess
from disttrain_launcher.worker import processes
null = subprocess.DEVNULL
sleeper = subprocess.Popen(["sleep", "20"], stdout=null, stderr=null)
look, looks = processes.descendants, []
processes.descendants = lambda of: looks.append(1) or (look(of) if len(looks) > 1 else [])
assert processes.kill_descendants(set(), 2.0) == []
print(os.path.exists(f"/proc/{sleeper.pid}"), len(looks))
"""


def test_one_look_that_finds_nothing_is_not_believed():
    """It misses whose parent ends while it reads process after process. That there is no child at
    all is the kernel's word, which ends the looking."""
    done = subprocess.run([sys.executable, "-c", MISSED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    gone, looks = done.stdout.split()
    assert gone == "False" and int(looks) >= 2
