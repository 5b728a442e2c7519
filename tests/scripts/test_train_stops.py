"""A run that is stopped behind any step goes on, on any number of ranks, as if it had not been."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import train as program

import disttrain as dt
from disttrain import config
from disttrain.metrics import read_jsonl
from training import checkpoint, loop, planning
from training.datasets import Task, make_task
from training.feeding import Feed, StepSampler
from training.settings import Settings

ROOT = Path(__file__).parents[2]
WORDS = ["--model.name=mlp", "--model.hidden=4", "--data.batch_size=16", "--train.epochs=2"]
WORDS += ["--log.every=3", "--log.tensorboard=false", "--optim.lr=0.01"]
STEPS = 8  # of two epochs

Curve = dict[tuple[str, int], float]


@pytest.fixture(scope="module")
def task() -> Task:
    """So few samples that many epochs are quick; the last six fill no step."""
    whole = make_task(config.load(Settings, None, WORDS).data)
    train, test = (dt.data.Subset(d, range(n)) for d, n in ((whole.train, 70), (whole.test, 40)))
    return replace(whole, train=train, test=test)


class Runs:
    """Runs of one task on simulated ranks. ``taken``: the samples of each step of the last one."""

    def __init__(self, task: Task, patch: pytest.MonkeyPatch) -> None:
        self.stop, self.taken = STEPS + 1, defaultdict(list)
        for module in (loop, planning):
            patch.setattr(module, "make_task", lambda data: task)
        begin, step = loop.Trainer.__init__, loop.Trainer._train_step

        def init(trainer, *args):
            begin(trainer, *args)
            trainer.commit = lambda: trainer.step >= self.stop

        def noted(trainer, batches):
            for inputs, _ in batches:
                self.taken[trainer.step + 1] += [sample.numpy().tobytes() for sample in inputs]
            return step(trainer, batches)

        patch.setattr(loop.Trainer, "__init__", init)
        patch.setattr(loop.Trainer, "_train_step", noted)

    def __call__(
        self, folder: Path, ranks: int, *words: str, stop: int = STEPS + 1, resume: bool = False
    ) -> Curve:
        """Train until behind step ``stop``; what is recorded in the end, each thing once."""
        self.stop = stop
        self.taken.clear()
        settings = config.load(Settings, None, [*WORDS, f"--log.dir={folder}", *words])
        found = checkpoint.find(folder) if resume else None
        body = lambda: program.train(settings, found)
        result = dt.distributed.simulate(body, ranks, seed=1).results[0]
        assert result.stopped == (stop <= STEPS)
        return curve(result.run)

    def samples(self) -> dict[int, list[bytes]]:
        return {step: sorted(taken) for step, taken in self.taken.items()}


@pytest.fixture
def runs(task, monkeypatch) -> Runs:
    return Runs(task, monkeypatch)


def curve(run: Path) -> Curve:
    rows = [r for r in read_jsonl(run / "metrics.jsonl") if r["kind"] != "resume"]
    found = {(r["kind"], r["step"]): r["loss"] for r in rows}
    assert len(found) == len(rows), rows  # nothing is recorded twice
    return found


@pytest.mark.parametrize("strategy", ["ddp", "global", "fsdp"])
@pytest.mark.parametrize("first", [1, 2, 4])
def test_every_step_may_be_the_last_one(tmp_path, runs, first, strategy):
    words = [f"--parallel.strategy={strategy}", "--model.dropout=0"]
    if strategy == "global":
        words = ["--parallel.deterministic=global", "--model.dropout=0.2"]
    whole = runs(tmp_path / "whole", first, *words)
    order = runs.samples()
    assert [step for kind, step in whole if kind == "train"] == [3, 6]
    assert [step for kind, step in whole if kind == "test"] == [4, 8] and len(order) == STEPS
    all_ranks = strategy == "ddp"
    for stop in range(1, STEPS + 1) if all_ranks else (2, STEPS // 2, STEPS):
        cut = tmp_path / f"{stop}"
        runs(cut, first, *words, stop=stop)
        for then in (1, 2, 3, 4) if all_ranks else (1, 4):
            again = tmp_path / f"{stop}-{then}"
            shutil.copytree(cut, again)
            found = runs(again, then, *words, resume=True)
            what = f"stopped behind step {stop} on {first} ranks, resumed on {then}"
            assert runs.samples() == {s: order[s] for s in range(stop + 1, STEPS + 1)}, what
            assert found.keys() == whole.keys(), what
            if then == first or strategy == "global":
                assert found == whole, what
            else:
                assert list(found.values()) == pytest.approx(list(whole.values()), rel=1e-5), what
            shutil.rmtree(again)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 16])
def test_steps_have_the_same_samples_on_any_number_of_ranks(size):
    whole = list(StepSampler(range(70), 16, 0, 1, seed=3))
    ranks = [StepSampler(range(70), 16, rank, size, seed=3) for rank in range(size)]
    for step, parts in enumerate(zip(*ranks, strict=True)):
        assert sorted(chain.from_iterable(parts)) == sorted(whole[step])
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for done in range(4):
        for sampler in ranks:
            all_of_it = list(sampler)
            state = sampler.state_at(done)
            sampler.load_state_dict(state)
            assert list(sampler) == all_of_it[done:]
            assert sampler.state_at(1) == {"epoch": 0, "taken": (done + 1) * 16}
            sampler.load_state_dict(state)
            sampler.set_epoch(1)
            assert len(list(sampler)) == 4
            sampler.set_epoch(0)


def test_a_rank_without_samples_is_refused(task):
    settings = config.load(Settings, None, [*WORDS, "--data.batch_size=2"])
    with pytest.raises(ValueError, match="2 given for 3 ranks; at least 3 is needed"):
        Feed(settings, task, 0, 3)


STOPPED = """
import sys
import train
from training import loop
stop = int(sys.argv.pop(1))
begin = loop.Trainer.__init__
def init(trainer, *args):
    begin(trainer, *args)
    trainer.commit = lambda: trainer.step >= stop
loop.Trainer.__init__ = init
sys.exit(train.main())
"""


def train(folder: Path, ranks: int, stop: int, *words: str) -> str:
    """In processes of their own."""
    script = folder.parent / "stopped.py"
    script.write_text(STOPPED)
    command = [
        sys.executable,
        "-m",
        "disttrain_launcher",
        "--nproc-per-node",
        str(ranks),
        str(script),
    ]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*command, str(stop), *WORDS, "--data.batch_size=64", f"--log.dir={folder}", *words],
        env=env, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ended.returncode == (143 if stop <= 44 else 0), ended.stderr
    return ended.stdout


@pytest.mark.timeout(150)  # on a busy machine
@pytest.mark.parametrize(("first", "then"), [(2, 1), (1, 3)])
def test_processes_that_were_stopped_behind_the_last_step_of_an_epoch_go_on(tmp_path, first, then):
    words = [*WORDS, "--data.batch_size=64", "--parallel.strategy=none"]
    settings = config.load(Settings, None, [*words, f"--log.dir={tmp_path / 'whole'}"])
    whole = curve(loop.Trainer(settings).fit().run)
    train(tmp_path / "cut", first, 22)
    assert checkpoint.find(tmp_path / "cut").name == "epoch_0000_step_00000022"
    assert "goes on behind step 22 of 44" in train(tmp_path / "cut", then, 100, "--resume")
    found = curve(tmp_path / "cut" / "0001")
    assert found.keys() == whole.keys() and len(found) == 16
    assert list(found.values()) == pytest.approx(list(whole.values()), rel=1e-5)
