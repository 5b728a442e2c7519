"""The training loop: epochs of steps, a test after each, a checkpoint after each and in between.

Every rank runs this. The numbers that are logged are those of all ranks together. The random
state is set anew at the start of each epoch from seed, epoch and rank, and a checkpoint in the
middle of one has it of every rank, so a resumed run goes on exactly as the run that was cut short
would have. On another number of ranks it is set anew from seed, epoch, step and rank.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import disttrain as dt
from disttrain import config, context, metrics
from disttrain.distributed.checkpoint import tools
from disttrain.distributed.elastic import termination_requested
from disttrain.errors import ConfigError

from . import checkpoint, exporting
from .datasets import make_task
from .devices import own_device, rng_state, set_rng_state
from .feeding import Feed
from .models import make_model, write_text
from .optimizing import learning_rate_factor
from .planning import memory_table
from .reporting import Reporter
from .settings import Settings
from .stepping import Step, answer, make_step
from .strategies import SHARDED, Wrapped, make_rank_optimizer, wrap
from .tally import Tally, means

# What a checkpoint says of how far the run is, and what a resumed run may do differently.
_PROGRESS = ("epoch", "step", "train_loss", "test_accuracy")
_GENERATION = "DISTTRAIN_GENERATION"  # which start of the job this is
WANTED = "DISTTRAIN_ON_TERM"  # set: the job is to save when it gets SIGTERM
_MAY_CHANGE = {"schedule", "parallel", "log", "optim.lr", "data.dir", "data.num_workers"} | {
    "train.epochs", "train.device", "train.save_every", "train.compile"
}  # fmt: skip


class Stopped(Exception):  # noqa: N818  (no error: the run can go on from its checkpoint)
    """The job was asked to end, and everything is saved."""


@dataclass(frozen=True)
class Result:
    """How a run ended. ``run`` is its folder (rank 0 only). ``stopped``: it was asked to end before
    all was done."""

    test_accuracy: float
    train_loss: float
    world_size: int
    seconds: float
    run: Path | None
    stopped: bool = False


class Trainer:
    """One rank's part of a run. ``resume`` is a checkpoint to go on from."""

    def __init__(self, settings: Settings, resume: Path | None = None) -> None:
        self.settings = settings
        self.start = context.now()
        dt.manual_seed(settings.seed)
        self.task = make_task(settings.data)
        self.device = own_device(settings.train.device)
        self.model = make_model(settings.model, self.task, settings.data.block_size)
        self.model.to(self.device)
        self.run: Path | None = None
        self.take_part()
        self.num_steps = self.feed.per_epoch * settings.train.epochs
        self.optimizer = make_rank_optimizer(
            settings.parallel, settings.optim, self.model.parameters()
        )
        self.scheduler = dt.optim.lr_scheduler.LambdaLR(self.optimizer, self._factor)
        self.epoch = self.step = 0
        self.train_loss = self.test_accuracy = math.nan  # of the last epoch that is done
        self.whole = np.zeros(3)  # sums of this epoch, up to the last record
        self.rng: Any = None  # the random state to begin with in the middle of an epoch
        self.resumed = resume
        if resume is not None:
            self._load(resume)
        # Called after each step and epoch; true: the job is to end.
        self.commit: Callable[[], bool] = termination_requested if WANTED in os.environ else _never

    # -- setting up --------------------------------------------------------------------------------

    def take_part(self) -> None:
        """What depends on which ranks there are: the wrapped model, this rank's data and sums."""
        settings = self.settings
        self.alone = settings.parallel.strategy == "none" or not dt.distributed.is_initialized()
        self.rank = 0 if self.alone else dt.distributed.get_rank()
        self.world_size = 1 if self.alone else int(dt.distributed.get_world_size())
        if self.alone:
            self.wrapped = Wrapped(self.model, self.model)
        else:
            self.wrapped = wrap(settings.parallel, self.model, self.device.type)
        self.net, self.shards = self.wrapped.net, self.wrapped.shards
        size = self.wrapped.data_size
        rank = self.wrapped.data_rank
        self.feed = Feed(settings, self.task, rank, size, self.shards)
        self.copies = self.world_size // size
        self.tally = Tally(size, self.copies)
        self.compute: Step | None = None  # made when it is first needed

    def _factor(self, step: int) -> float:
        return learning_rate_factor(
            self.settings.schedule, step, self.num_steps, self.feed.per_epoch
        )

    def open_run(self) -> Path | None:
        """The folder of this run, on rank 0."""
        if self.rank or self.run is not None:
            return self.run
        job = checkpoint.job_of(os.environ)
        run = checkpoint.open_run(self.settings.log.dir, job, self.resumed)
        if not (run / "config.toml").exists():
            config.dump(self.settings, run / "config.toml")
        exporting.note(run, self.task)
        return run

    @property
    def done(self) -> int:
        """Steps of this epoch that are done."""
        return self.step - self.epoch * self.feed.per_epoch

    # -- running -----------------------------------------------------------------------------------

    def fit(self) -> Result:
        """Train until ``train.epochs`` epochs are done."""
        settings, stopped = self.settings, False
        self.run = self.open_run()
        batch, done = settings.data.batch_size, self.step * settings.data.batch_size
        total = self.num_steps * batch
        report = Reporter(settings.log, self.run, total, done, (self.step, self.epoch))
        try:
            report.text("config", config.dump(settings))
            if self.step or _GENERATION in os.environ:
                self._say_where(report)
            if not self.alone and self.run is not None and self.feed.even:
                report.progress.say(memory_table(settings, self.world_size))
            while self.epoch < settings.train.epochs:
                self._end_epoch(report, means(self._train_epoch(report)), means(self._test()))
            self._sample(report)
        except Stopped:
            stopped = True
        finally:
            report.close()
        seconds = context.now() - self.start
        loss, accuracy = self.train_loss, self.test_accuracy
        return Result(accuracy, loss, self.world_size, seconds, self.run, stopped)

    def _say_where(self, report: Reporter) -> None:
        """Tell people that the run goes on, or that it does not."""
        if self.step:
            where = f" from {self.resumed}" if self.resumed is not None else ""
            report.progress.say(f"goes on behind step {self.step} of {self.num_steps}{where}")
        elif os.environ[_GENERATION] != "1":
            report.progress.say(
                "ranks of this job ran before, but it has no checkpoint in "
                f"{self.settings.log.dir}: it begins at step 1 (train.save_every=N saves more "
                "often; all nodes need that folder)"
            )

    def _train_epoch(self, report: Reporter) -> np.ndarray:
        done, batch = self.done, self.settings.data.batch_size
        if done == 0:
            dt.manual_seed(self._seed())
            self.whole = np.zeros(3)
        elif self.rng is None or not set_rng_state(self.rng, self.device):
            dt.manual_seed(self._seed() + self.step * 1009**3)
        self.rng = None
        self.net.train()
        rows, since, note = self.feed.rows_per_step, self._since, ""
        rank, world = self.rank, self.world_size
        share = batch * (rank + 1) // world - batch * rank // world  # of a step's samples
        report.progress.title(f"epoch {self.epoch + 1}/{self.settings.train.epochs}")
        for batches in self.feed.steps(self.epoch, done):
            for number, found in enumerate(self._train_step(batches)):
                self.tally.add(since * rows + self.feed.place(number), *found)
            self.step, since = self.step + 1, since + 1
            metrics.step(share)
            if self.step % self.settings.log.every == 0:
                window, since = self.tally.together(0, since * rows), 0
                self.whole += window
                values = means(window)
                note = f"loss {values['loss']:.4f}  accuracy {values['accuracy']:.3f}"
                self._log_train(report, values)
            report.progress.update(batch, note)
            self._save_within()
            if self.commit():
                self._save_within(now=True)
                raise Stopped
        return self.whole + self.tally.together(0, since * rows)

    def _seed(self) -> int:
        return (self.settings.seed * 1009 + self.epoch) * 1009 + self.wrapped.data_rank

    @property
    def _since(self) -> int:
        """Steps of this epoch since the last record."""
        return min(self.done, self.step % self.settings.log.every)

    def _train_step(self, batches: list) -> list[tuple[float, float, int]]:
        """One step of the optimizer; the answers to each batch."""
        if self.compute is None:
            mean = None if self.feed.even else self.feed.batch_size / self.feed.size
            self.compute = make_step(self.wrapped, self.optimizer, mean, self.settings)
        batches = [self._placed(*batch) for batch in batches]
        found = self.compute(batches)
        self.scheduler.step()
        return [
            (loss.item(), right.item(), targets.numel())
            for (loss, right), (_, targets) in zip(found, batches, strict=True)
        ]

    def _placed(self, inputs: Any, targets: Any) -> tuple[Any, Any]:
        to = {"device": self.device, "non_blocking": True}
        return inputs.to(**to), targets.to(**to)

    def _test(self) -> np.ndarray:
        self.net.eval()
        tally = Tally(self.wrapped.data_size, self.copies)
        with dt.no_grad():
            for number, (inputs, targets) in self.feed.tests():
                inputs, targets = self._placed(inputs, targets)
                loss, right = answer(self.net, inputs, targets)
                if number is not None:
                    tally.add(number, loss.item(), right.item(), targets.numel())
        return tally.together(0, self.feed.num_tests)

    def _log_train(self, report: Reporter, means: dict[str, float]) -> None:
        if not math.isfinite(means["loss"]):
            raise FloatingPointError(
                f"train: the loss is {means['loss']} at step {self.step} of epoch "
                f"{self.epoch + 1}. Lower optim.lr, or set optim.clip_norm"
            )
        rate = {"lr": self.scheduler.get_last_lr()[0], "samples_per_second": report.progress.rate}
        values = {**means, **rate, "samples": self.done * self.feed.batch_size}  # of this epoch
        report.record("train", self.step, self.epoch + 1, values)

    # -- the end of an epoch -----------------------------------------------------------------------

    def _end_epoch(
        self, report: Reporter, trained: dict[str, float], tested: dict[str, float]
    ) -> None:
        self.epoch += 1
        self.train_loss, self.test_accuracy = trained["loss"], tested["accuracy"]
        report.record("test", self.step, self.epoch, tested)
        keep = self.settings.log.keep_checkpoints
        checkpoint.save(self.run, checkpoint.name_of(self.epoch), self._state(), keep)
        stop = self.commit()
        epochs = self.settings.train.epochs
        report.progress.say(
            f"epoch {self.epoch}/{epochs} done  {self.epoch / epochs:4.0%}  "
            f"loss {self.train_loss:.4f}  test loss {tested['loss']:.4f}  "
            f"test accuracy {self.test_accuracy:.4f}  {report.progress.rate:,.0f} samples/s"
        )
        if stop:
            raise Stopped

    def _save_within(self, now: bool = False) -> None:
        """The checkpoints between the ends of epochs. ``now``: whether or not it is time."""
        every = self.settings.train.save_every
        due = every is not None and self.step % every == 0 and self.step % self.feed.per_epoch
        if now == bool(due):
            return  # it is not time, or has just been done
        state, rows = self._state(), self._since * self.feed.rows_per_step
        state["sums"] = {
            "whole": self.whole.tolist(),
            "every": self.settings.log.every,
            "rows": (self.tally.table(0, rows) / self.copies).tolist(),
            "earlier": self.tally.earlier.tolist(),
        }
        state["loader"] = {str(self.rank): self.feed.loader.state_dict()}
        state["rng"] = {str(self.rank): {"state": rng_state(self.device), "of": self.world_size}}
        name = checkpoint.name_of(self.epoch, self.step)
        checkpoint.save(self.run, name, state, self.settings.log.keep_checkpoints)

    def _load_within(self, path: Path) -> None:
        """Go on in the middle of an epoch, if ``path`` is of one."""
        loader = checkpoint.part(path, "loader", self.rank)[0]
        if loader is None:
            return
        if self.done < self.feed.per_epoch:  # else the next pass is of the next epoch
            self.feed.loader.load_state_dict(loader)
        rng, own = checkpoint.part(path, "rng", self.rank)
        if own and rng["of"] == self.world_size:
            self.rng = rng["state"]
        sums = tools.values(str(path), ["sums"])["sums"]
        self.whole = np.array(sums["whole"])
        rows, earlier = (
            np.array(sums["rows"]).reshape(-1, 3),
            np.array(sums.get("earlier", [0.0] * 3)),
        )
        if sums["every"] != self.settings.log.every:  # records at other steps begin anew
            self.whole += np.add.reduce(rows) + earlier
        elif len(rows) == self._since * self.feed.rows_per_step:
            self.tally.before, self.tally.earlier = rows * self.copies, earlier
        else:  # of another number of ranks
            self.tally.earlier = np.add.reduce(rows) + earlier

    def _state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": checkpoint.state_of(self.optimizer),
            "scheduler": {"last_epoch": self.scheduler.last_epoch},
            "progress": {name: getattr(self, name) for name in _PROGRESS},
            "settings": config.dump(self.settings),
        }

    def _load(self, path: Path) -> None:
        state = checkpoint.load(
            path, self._state(), self.optimizer,
            lambda saved: _check_same(path, saved, self.settings),
        )  # fmt: skip
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.last_epoch = state["scheduler"]["last_epoch"]
        for name in _PROGRESS:
            setattr(self, name, state["progress"][name])
        if self.shards is not None:  # the shards' random streams go on with the step
            begun = {"count": self.shards.count, "seed": self.shards.seed, "step": self.step}
            self.shards.load_state_dict(begun)
        self._load_within(path)

    def _sample(self, report: Reporter) -> None:
        log = self.settings.log
        together = self.settings.parallel.strategy in SHARDED  # weights are gathered by all ranks
        if self.task.alphabet and log.sample and (together or self.run is not None):
            text = write_text(self.model, self.task.alphabet, log.sample, self.settings.seed)
            if self.run is not None:
                report.text("sample", text, self.step)
                report.progress.say(f"--- sample ---\n{text}\n--------------")


def _never() -> bool:
    return False


def _check_same(path: Path, saved: str, settings: Settings) -> None:
    """A run goes on with the seed, the data, the model and the optimizer that it began with."""
    before, now = _flat(config.parse_toml(saved)), _flat(config.to_dict(settings))
    for name, value in now.items():
        if name in _MAY_CHANGE or name.partition(".")[0] in _MAY_CHANGE:
            continue
        if before.get(name, value) != value:
            raise ConfigError(
                f"--resume: {name} is {value!r} here and {before[name]!r} in {path}; "
                f"give --{name} {before[name]} or start a new run"
            )


def _flat(table: dict[str, Any]) -> dict[str, Any]:
    rows = {}
    for section, value in table.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        rows |= {f"{section}.{name}" if name else section: v for name, v in inner}
    return rows
