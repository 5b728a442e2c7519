"""Jobs that outlive their ranks, as users run them: a rank killed and started anew beside the
others, whole restarts that wait, and SIGTERM as a request to save."""

from __future__ import annotations

import json
import signal

import pytest

from disttrain_launcher.options.command_line import parse
from support.dtrun import Job, dtrun

TRAIN = """
import os, signal
import disttrain as dt
from disttrain import nn
from disttrain import distributed as dist
from disttrain.distributed import elastic
from disttrain.distributed.ddp import DistributedDataParallel

me, again = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
model = nn.Linear(2, 1)
with dt.no_grad():
    for p in model.parameters():
        p.zero_()
optimizer = dt.optim.SGD(model.parameters(), 1.0, momentum=0.5)
state = elastic.State(model=model, optimizer=optimizer, step=0)

@elastic.run
def train(state):
    began = state.step
    ddp = DistributedDataParallel(state.model)
    while state.step < 60 or dist.get_world_size() < 3:
        optimizer.zero_grad()
        ddp(dt.ones(1, 2)).sum().backward()
        optimizer.step()
        state.step += 1
        if me == VICTIM and state.step == 20 and not again:
            os.kill(os.getpid(), signal.SIGKILL)
        state.commit()
    assert dist.get_rank() == me
    return began

began = train(state)
with open("end" + str(me), "w") as f:
    f.write(f"{began > 0} {state.step} {[p.tolist() for p in model.parameters()]}")
"""


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_was_killed_is_started_anew_and_takes_over_the_others_state(tmp_path, victim):
    flags = ("--nproc-per-node", "3", "--replace-ranks", "--max-restarts", "2", "--log-dir", "log")
    ended = dtrun(tmp_path, TRAIN.replace("VICTIM", str(victim)), *flags)
    assert ended.code == 0, ended.err
    told = [line for line in ended.err.splitlines() if line.startswith("dtrun:")]
    assert len(told) == 1 and told[0].startswith(f"dtrun: rank {victim} failed (killed by SIGKILL")
    assert told[0].endswith("the others go on, and it is started anew: restart 1 of 2")
    ends = {(tmp_path / f"end{r}").read_text() for r in range(3)}
    assert len(ends) == 1 and next(iter(ends)).startswith("True")
    report = json.loads((tmp_path / "log" / "report.json").read_text())
    assert [(r["rank"], r["signal"]) for r in report["replaced"]] == [(victim, 9)]
    assert report["root_cause"] is None and len(report["ranks"]) == 3


def test_attempts_that_fail_at_once_wait_and_a_signal_ends_the_wait(tmp_path):
    job = Job(tmp_path, "exit(3)", "--max-restarts", "5")
    assert job.process.stderr is not None
    told = [job.process.stderr.readline() for _ in range(2)]
    job.process.terminate()
    ended = job.wait()
    assert ended.code == 143 and ended.err == "" and job.processes() == []
    first = "dtrun: rank 0 failed (exit code 3); restart"
    assert told[0] == f"{first} 1 of 5\n"
    assert told[1] == f"{first} 2 of 5 in 1 s, since the last 2 attempts failed at once\n"


SAVES = """
import os, time
from disttrain.distributed import elastic
import disttrain.distributed as dist
dist.init_process_group()
me, step = dist.get_rank(), 0
while True:
    step += 1
    time.sleep(0.001 * (me + 1))
    if step == 5:
        open(f"up{me}", "w").close()
    if elastic.termination_requested():
        open(f"asked{me}", "w").close()
        if STOPS:
            break
with open(f"saved{me}", "w") as f:
    f.write(str(step))
"""


def test_ranks_that_are_asked_to_end_save_the_same_step(tmp_path):
    flags = ("--nproc-per-node", "2", "--on-term", "checkpoint")
    job = Job(tmp_path, SAVES.replace("STOPS", "True"), *flags)
    job.wait_for("up0", "up1")
    job.process.terminate()
    ended = job.wait()
    assert ended.code == 143 and ended.err == "" and job.processes() == []
    assert len({(tmp_path / f"saved{r}").read_text() for r in (0, 1)}) == 1


@pytest.mark.parametrize("second", [signal.SIGINT, None])
def test_who_does_not_save_is_killed(tmp_path, second):
    """By a second signal, or in time."""
    flags = ("--on-term", "checkpoint", "--shutdown-timeout", "30" if second else "0.2")
    job = Job(tmp_path, SAVES.replace("STOPS", "False"), *flags)
    job.wait_for("up0")
    job.process.terminate()
    if second:
        job.wait_for("asked0")  # signals that wait together come in the order of their numbers
        job.process.send_signal(second)
    ended = job.wait(10)
    assert ended.code == 143 and job.processes() == []


@pytest.mark.simulated
def test_what_such_jobs_need_is_checked(capsys):
    options = parse(["--replace-ranks", "--max-restarts", "2", "x.py"], {})
    assert (options.min_ranks, options.shutdown_timeout, options.on_term) == (1, 5.0, "exit")
    assert parse(["--on-term", "checkpoint", "x.py"], {}).shutdown_timeout == 30.0
    assert (
        parse(["--shutdown-timeout", "7", "--on-term=checkpoint", "x.py"], {}).shutdown_timeout == 7
    )
    for words, said in (
        (["--replace-ranks"], "add --max-restarts N"),
        (["--replace-ranks", "--max-restarts", "1", "--simulate", "2"], "of one machine"),
        (["--on-term", "pray"], "invalid choice: 'pray'"),
        (["--max-restarts", "-1"], "--max-restarts -1: at least 0 is needed"),
    ):
        with pytest.raises(SystemExit):
            parse([*words, "x.py"], {})
        assert said in capsys.readouterr().err
