"""``dtrun --simulate``: a script's ranks as threads of one process, as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from disttrain.errors import ConfigError
from disttrain_launcher.options.command_line import parse
from disttrain_launcher.options.simulation import words_of
from disttrain_launcher.simulated.job import make_cluster
from support.chakra import read
from support.dtrun import Job, dtrun

TRAIN = """
import os, sys, random
import numpy as np
import disttrain as dt
from disttrain import nn, optim
from disttrain import distributed as dist
from disttrain.distributed.ddp import DistributedDataParallel as DDP
import ours

def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    assert (rank, int(os.environ["WORLD_SIZE"])) == (dist.get_rank(), dist.get_world_size())
    dt.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Tanh(), nn.Linear(16, 3))
    ddp = DDP(model, bucket_cap_mb=0.0005)
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    dt.manual_seed(100 + rank)
    random.seed(rank), np.random.seed(rank)
    for step in range(3):
        optimizer.zero_grad()
        x = dt.tensor(np.random.standard_normal((4, 8)).astype("f")) * random.random()
        loss = (ddp(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        ours.seen.append(rank)
    bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters()).hex()
    dist.destroy_process_group()
    print(rank, float(loss).hex(), hash(bits), ours.seen, sys.argv[1:], __name__)

if __name__ == "__main__":
    main()
"""
OURS = "seen = []\n"
SETTINGS = {"env": {"PYTHONHASHSEED": "0"}, "args": ("--lr", "1")}


def test_results_are_bit_for_bit_those_of_processes(tmp_path: Path) -> None:
    ranks = 8
    (tmp_path / "ours.py").write_text(OURS)
    real = dtrun(tmp_path, TRAIN, "--nproc-per-node", str(ranks), **SETTINGS)
    trace = tmp_path / "trace.json"
    flags = ("--simulate", str(ranks), "--hosts", "2", "--seed", "7", "--timeline", str(trace),
             "--chakra", str(tmp_path / "chakra"))  # fmt: skip
    simulated = dtrun(tmp_path, TRAIN, *flags, **SETTINGS)
    assert (real.code, simulated.code) == (0, 0), simulated.err
    lines = sorted(simulated.out.splitlines())
    assert lines == sorted(real.out.splitlines()) and len(lines) == ranks
    assert "predicted step time" in simulated.err
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["pid"] for e in events} == set(range(ranks))
    assert {e["cat"] for e in events if e["ph"] == "X"} >= {"compute", "communication"}
    _, nodes = read(tmp_path / f"chakra.{ranks - 1}.et")
    reduced = [n for n in nodes if n["name"] == "all_reduce"]
    assert reduced and all(n["attr"]["comm_size"] > 0 for n in reduced)


ODD = """
import atexit, logging, os, signal, sys
from disttrain import distributed as dist
rank = int(os.environ["RANK"])
atexit.register(print, "farewell", rank)
signal.signal(signal.SIGTERM, lambda *_: None)
if rank == 0:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
os.environ["MINE"] = str(rank)
dist.init_process_group()
dist.barrier()
logging.info("hello of %d", rank)
sys.stdout.write(f"mine {os.environ['MINE']} local {os.environ['LOCAL_RANK']}")
sys.stdout.buffer.write(b"!\\n")
assert sys.modules["__main__"].rank == rank
dist.destroy_process_group()
if rank == 1:
    sys.exit("no more")
"""


def test_every_rank_has_a_process_of_its_own_as_far_as_it_can_see(tmp_path: Path) -> None:
    ended = dtrun(tmp_path, ODD, "--simulate", "4", "--hosts", "2", "--log-dir", "logs",
                  "--tee", "1:3")  # fmt: skip
    assert ended.code == 1
    assert sorted(ended.out.splitlines()) == sorted(
        ["[rank 0] hello of 0"]
        + [f"[rank {r}] farewell {r}" for r in range(4)]
        + [f"[rank {r}] mine {r} local {r % 2}!" for r in range(4)]
    )
    assert "[rank 1] no more" in ended.err and "exit code 1" in ended.err
    assert (tmp_path / "logs/attempt_0/1/stdout.log").read_text() == "mine 1 local 1!\nfarewell 1\n"


KEPT = """
import weakref
import disttrain as dt
from disttrain import distributed as dist
from disttrain.data import DataLoader
class Kept: pass
dist.init_process_group()
rank = dist.get_rank()
kept, dropped = Kept(), Kept()
weakref.finalize(kept, print, "kept", rank)
weakref.finalize(dropped, print, "dropped", rank)
del dropped
loader = iter(DataLoader(list(range(12)), batch_size=1, num_workers=1))
for batch in range(2 if rank == 0 else 10):
    next(loader)
    dist.send(dt.ones(1), 1) if rank == 0 and batch == 1 else None
    dist.recv(dt.ones(1), 0) if rank == 1 and batch == 1 else None
if rank:
    import time; time.sleep(1.0)  # the other one has ended
    print(len(list(loader)), "more")
"""


@pytest.mark.parametrize("face", [(), ("--as-torch",)])
def test_what_is_to_end_with_a_rank_ends_with_that_one_alone(tmp_path: Path, face: tuple) -> None:
    """Finalizers of its objects, and workers that load its data."""
    ended = dtrun(tmp_path, KEPT, "--simulate", "2", *face)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert sorted(lines) == [
        "[rank 0] dropped 0", "[rank 0] kept 0", "[rank 1] 2 more", "[rank 1] dropped 1",
        "[rank 1] kept 1",
    ]  # fmt: skip
    assert lines.index("[rank 1] 2 more") > lines.index("[rank 0] kept 0")


ENDS = """
import os, signal, sys
from disttrain import distributed as dist
dist.init_process_group()
dist.barrier()
if dist.get_rank() == 1:
    if sys.argv[1] == "interrupt":
        raise KeyboardInterrupt
    {"exit": lambda: os._exit(0), "abort": os.abort,
     "raise": lambda: signal.raise_signal(signal.SIGTERM)}[sys.argv[1]]()
dist.barrier()
"""


@pytest.mark.parametrize(
    ("how", "code", "cause"),
    [
        ("exit", 1, "ended with exit code 0 in the middle of its program"),
        ("abort", 134, "killed by SIGABRT"),
        ("raise", 143, "killed by SIGTERM"),
        ("interrupt", 130, "KeyboardInterrupt"),
    ],
)
def test_a_rank_that_ends_itself_ends_as_its_process_would(
    tmp_path: Path, how: str, code: int, cause: str
) -> None:
    ended = dtrun(tmp_path, ENDS, "--simulate", "2", args=(how,))
    assert ended.code == code and cause in ended.err and "rank      : 1" in ended.err


PATCHING = """
import atexit, builtins, contextlib, io, os, sys, threading, time, unittest.mock, warnings
import json
from disttrain import distributed as dist

dist.init_process_group()
rank = dist.get_rank()
found = []

def keep_to_rank_1():
    shown = builtins.print
    def print(*args, force=False):
        if rank == 1 or force:
            shown(*args)
    builtins.print = print

keep_to_rank_1()
warnings.simplefilter("error" if rank else "ignore")
json.mine = rank
log, flag = io.StringIO(), os.path.join(sys.argv[1], "flag")
with contextlib.redirect_stdout(log), unittest.mock.patch("os.getpid", lambda: rank):
    dist.barrier()
    found.append((json.mine, os.getpid()))
    sys.stdout.write(str(rank))
    dist.barrier()
if rank:
    while not os.path.exists(flag):  # rank 0 comes later
        time.sleep(0.1)
else:
    open(flag, "w").close()
try:
    warnings.warn("now")
except UserWarning:
    found.append("error")
thread = threading.Thread(target=lambda: found.append((dist.get_rank(), os.environ["RANK"])))
thread.start()
thread.join()
del json.mine
dist.barrier()
print("only one")
print(found, log.getvalue(), hasattr(json, "mine"), force=True)
atexit.register(lambda: print("bye", force=True))
dist.destroy_process_group()
if rank == 2:
    raise ValueError("at the end")
"""


def test_what_a_rank_sets_in_shared_modules_is_its_own(tmp_path: Path) -> None:
    ended = dtrun(tmp_path, PATCHING, "--simulate", "3", args=(str(tmp_path),))
    assert ended.code == 1 and "ValueError: at the end" in ended.err
    assert sorted(ended.out.splitlines()) == sorted(
        ["[rank 0] [(0, 0), (0, '0')] 0 False", "[rank 1] only one"]
        + [f"[rank {r}] [({r}, {r}), 'error', ({r}, '{r}')] {r} False" for r in (1, 2)]
        + [f"[rank {r}] bye" for r in range(3)]
    )


CALLING = """
import os, sys
import disttrain as dt
from disttrain import distributed as dist
from disttrain import rpc

def wait_for(rank):
    dist.irecv(dt.zeros(1), rank).wait()

rank = int(os.environ["RANK"])
dist.init_process_group()
rpc.init_rpc(f"w{rank}", rank=rank, world_size=2)
if rank == 0:
    answer = rpc.rpc_async("w1", wait_for, args=(0,))
    dist.send(dt.ones(1), 1)
    answer.wait()
    rpc.rpc_sync("w1", wait_for, args=(0,))
rpc.shutdown()
"""


def test_waits_for_other_workers_are_in_the_timeline_and_in_a_deadlocks_report(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "trace.json"
    ended = dtrun(tmp_path, CALLING, "--simulate", "2", "--latency", "5ms", "--timeline",
                  str(trace))  # fmt: skip
    assert ended.code == 1 and "a call has failed" not in ended.err
    for line in (
        "rank 0: the answer of w1 to __main__.wait_for\n",
        "rank 1 (request of worker 0): recv(float32[1], src=0",
        "script.py:8 in wait_for: dist.irecv(dt.zeros(1), rank).wait()",
        "rank 1: the answer of w0 to ",
    ):
        assert line in ended.err
    spans = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    asked = [e for e in spans if e["name"] == "the answer of w1 to __main__.wait_for"]
    assert {e["pid"] for e in asked} == {0}
    assert sum(e["dur"] for e in asked if e["cat"] == "communication") >= 5e3
    assert {e["pid"] for e in spans if e["name"] == "rpc" and e["tid"] == 1} == {0, 1}


THREADED = """
import threading
import disttrain as dt
from disttrain import distributed as dist
dist.init_process_group()
thread = threading.Thread(target=dist.all_reduce, args=(dt.ones(2),), name="aside")
thread.start()
thread.join()
"""


def test_a_job_fails_whose_own_threads_communicate(tmp_path: Path) -> None:
    ended = dtrun(tmp_path, THREADED, "--simulate", "2")
    assert ended.code == 1 and "thread 'aside', which the program has started" in ended.err


STUCK = """
import disttrain as dt
from disttrain import distributed as dist
dist.init_process_group()
x = dt.ones(3)
if dist.get_rank() == 2:
    dist.recv(x, 0)
else:
    dist.all_reduce(x)
"""


def test_a_deadlock_is_told_at_once_with_the_stacks_of_all_ranks(tmp_path: Path) -> None:
    ended = dtrun(tmp_path, STUCK, "--simulate", "4")
    assert ended.code == 1 and "Deadlock: no simulated rank can go on" in ended.err
    assert "ranks 0-1, 3: all_reduce(float32[3]" in ended.err
    assert "rank 2: recv(float32[3], src=0" in ended.err
    assert "script.py:9 in <module>: dist.all_reduce(x)" in ended.err


def test_a_kill_strikes_at_its_point_and_is_the_headline(tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text(OURS)
    ended = dtrun(tmp_path, TRAIN, "--simulate", "3", "--kill", "1@all_reduce:2")
    assert ended.code == 137 and "killed (--kill 1@all_reduce:2)" in ended.err
    assert "2 other ranks ended with it" in ended.err and "Traceback" not in ended.err


RACE = """
import disttrain as dt
from disttrain import distributed as dist
dist.init_process_group()
x, n = dt.zeros(1), dist.get_world_size()
if dist.get_rank():
    dist.send(x, 0)
else:
    came = [dist.recv(x) for _ in range(n - 1)]
    assert came != [2, 1, *range(3, n)], came
dist.barrier()
"""


def test_exploring_finds_a_schedule_that_fails_and_says_how_to_replay_it(tmp_path: Path) -> None:
    ended = Job(tmp_path, RACE, "--simulate", "4", "--explore", "40", "--seed", "3").wait(55)
    assert ended.code == 1 and "the simplest failing trial: 3 ranks" in ended.err
    replay = ended.err.partition("replay it with: dtrun ")[2].split()
    again = dtrun(tmp_path, RACE, *replay[:-1])
    assert again.code == 1 and "AssertionError: [2, 1]" in again.err


@pytest.mark.simulated
def test_flags_that_do_not_fit_are_told(capsys) -> None:
    with pytest.raises(SystemExit):
        parse(["--seed", "3", "train.py"], {})
    assert "add --simulate N" in capsys.readouterr().err
    wrong = {
        ("--kill", "5@all_reduce:1"): "there is no rank 5 among 2",
        ("--kill", "1@reduce_all:1"): "reduce_all is no verb",
        ("--kill", "1@send:0"): "counted from 1",
        ("--delay", "1@send:1"): "RANK@VERB:N=TIME is needed",
        ("--drop", "1@rpc:1"): "none is lost",
        ("--straggler", "2=2x"): "rank below 2",
        ("--hosts", "3"): "1 <= hosts <= ranks",
        ("--latency", "20"): "",
        ("--latency", "20km"): "a time such as 20us",
        ("--bandwidth", "fast"): "a bandwidth such as 10GB/s",
    }
    for words, text in wrong.items():
        flags = parse(["--simulate", "2", *words, "train.py"], {}).simulated
        assert flags is not None and words_of(flags) == list(words)
        if text:
            with pytest.raises(ConfigError, match=text):
                make_cluster(2, flags, "measured")
        else:
            assert make_cluster(2, flags, "0").local.latency == 20.0
