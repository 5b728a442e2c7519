"""The training loop: epochs of steps, a test after each, a checkpoint after each.

Every rank runs this. The numbers that are logged are those of all ranks together. The random
state is set anew at the start of each epoch from seed, epoch and rank, so a resumed run goes on
exactly as the run that was cut short would have.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import disttrain as dt
from disttrain import config, context
from disttrain.errors import ConfigError

from . import checkpoint
from .datasets import Task, make_task
from .models import make_model, write_text
from .optimizing import learning_rate_factor, make_optimizer
from .reporting import Reporter
from .settings import Settings

F = dt.nn.functional

# What a checkpoint says of how far the run is, and what a resumed run may do differently.
_PROGRESS = ("epoch", "step", "train_loss", "test_accuracy")
_MAY_CHANGE = {"schedule", "train", "parallel", "log", "optim.lr", "data.dir", "data.num_workers"}


@dataclass(frozen=True)
class Result:
    """How a run ended. ``run`` is its folder (rank 0 only)."""

    test_accuracy: float
    train_loss: float
    world_size: int
    seconds: float
    run: Path | None


@dataclass
class _Sums:
    """Sums over samples: of the loss, of right answers, and how many answers there were."""

    loss: float = 0.0
    right: float = 0.0
    answers: float = 0.0

    def add(self, loss: float, right: float, answers: float) -> None:
        self.loss += loss * answers
        self.right += right
        self.answers += answers

    def means(self) -> dict[str, float]:
        count = max(self.answers, 1.0)
        return {"loss": self.loss / count, "accuracy": self.right / count}


class Trainer:
    """One rank's part of a run. ``resume`` is a checkpoint to go on from."""

    def __init__(self, settings: Settings, resume: Path | None = None) -> None:
        self.settings = settings
        self.start = context.now()
        self.ddp = settings.parallel.strategy == "ddp"
        self.rank = dt.distributed.get_rank() if self.ddp else 0
        self.world_size = dt.distributed.get_world_size() if self.ddp else 1
        dt.manual_seed(settings.seed)
        self.task = make_task(settings.data)
        self.model = make_model(settings.model, self.task, settings.data.block_size)
        self.net = self._wrap()
        self._make_loaders(self.task)
        self.optimizer = make_optimizer(settings.optim, self.model.parameters())
        self.scheduler = dt.optim.lr_scheduler.LambdaLR(self.optimizer, self._factor)
        self.epoch = self.step = 0
        self.train_loss = self.test_accuracy = math.nan  # of the last epoch that is done
        if resume is not None:
            self._load(resume)
        self.run = self._open_run(resume)

    # -- setting up --------------------------------------------------------------------------------

    def _wrap(self) -> dt.nn.Module:
        if not self.ddp:
            return self.model
        bucket_mb = self.settings.parallel.bucket_mb
        return dt.distributed.DistributedDataParallel(self.model, bucket_cap_mb=bucket_mb)

    def _make_loaders(self, task: Task) -> None:
        data, train = self.settings.data, self.settings.train
        each, rest = divmod(data.batch_size, self.world_size)
        if rest or not each:
            raise ConfigError(
                f"data.batch_size: {data.batch_size} given for {self.world_size} ranks; "
                f"a multiple of {self.world_size} is needed (it counts all ranks together)"
            )
        if len(task.train) < data.batch_size:
            raise ConfigError(
                f"data.batch_size: {data.batch_size} given; the training data has only "
                f"{len(task.train)} samples. Lower it, or train on fewer ranks"
            )
        self.sampler = dt.data.DistributedSampler(
            task.train, self.world_size, self.rank, seed=self.settings.seed, drop_last=True
        )
        workers = data.num_workers
        self.loader = dt.data.DataLoader(
            task.train, each, sampler=self.sampler, num_workers=workers, drop_last=True
        )
        own = range(self.rank, len(task.test), self.world_size)  # no sample is tested twice
        self.test_loader = dt.data.DataLoader(dt.data.Subset(task.test, own), max(each, 64))
        whole = len(task.train) // data.batch_size
        self.per_epoch = min(whole, train.steps_per_epoch or whole)
        self.num_steps = self.per_epoch * train.epochs

    def _factor(self, step: int) -> float:
        return learning_rate_factor(self.settings.schedule, step, self.num_steps, self.per_epoch)

    def _open_run(self, resume: Path | None) -> Path | None:
        """The folder of this run, on rank 0."""
        if self.rank:
            return None
        if resume is not None:
            return resume.parent
        run = checkpoint.new_run(self.settings.log.dir)
        config.dump(self.settings, run / "config.toml")
        return run

    # -- running -----------------------------------------------------------------------------------

    def fit(self) -> Result:
        """Train until ``train.epochs`` epochs are done."""
        settings = self.settings
        batch, done = settings.data.batch_size, self.step * settings.data.batch_size
        total = self.num_steps * batch
        report = Reporter(settings.log, self.run, total, done, self.step)
        try:
            report.text("config", config.dump(settings))
            while self.epoch < settings.train.epochs:
                trained = self._train_epoch(report).means()
                self._end_epoch(report, trained, self._test().means())
            self._sample(report)
        finally:
            report.close()
        seconds = context.now() - self.start
        return Result(self.test_accuracy, self.train_loss, self.world_size, seconds, self.run)

    def _train_epoch(self, report: Reporter) -> _Sums:
        self.sampler.set_epoch(self.epoch)
        dt.manual_seed((self.settings.seed * 1009 + self.epoch) * 1009 + self.rank)
        self.net.train()
        whole, window = _Sums(), _Sums()
        report.progress.title(f"epoch {self.epoch + 1}/{self.settings.train.epochs}")
        note = ""
        for inputs, targets in itertools.islice(self.loader, self.per_epoch):
            self._train_step(inputs, targets, whole, window)
            self.step += 1
            if self.step % self.settings.log.every == 0:
                means = self._over_ranks(window).means()
                window = _Sums()
                note = f"loss {means['loss']:.4f}  accuracy {means['accuracy']:.3f}"
                self._log_train(report, means)
            report.progress.update(self.settings.data.batch_size, note)
        return self._over_ranks(whole)

    def _train_step(self, inputs: Any, targets: Any, *sums: _Sums) -> None:
        loss, right, answers = self._answer(inputs, targets)
        self.optimizer.zero_grad()
        loss.backward()
        clip = self.settings.optim.clip_norm
        if clip is not None:
            dt.nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()
        self.scheduler.step()
        value = loss.item()
        for each in sums:
            each.add(value, right, answers)

    def _answer(self, inputs: Any, targets: Any) -> tuple[Any, float, int]:
        """The mean loss of a batch, how many answers were right, and how many there were."""
        scores = self.net(inputs)
        scores, targets = scores.reshape(-1, scores.shape[-1]), targets.reshape(-1)
        right = (scores.detach().argmax(-1) == targets).sum().item()
        return F.cross_entropy(scores, targets), right, targets.shape[0]

    def _test(self) -> _Sums:
        self.net.eval()
        sums = _Sums()
        with dt.no_grad():
            for inputs, targets in self.test_loader:
                loss, right, answers = self._answer(inputs, targets)
                sums.add(loss.item(), right, answers)
        return self._over_ranks(sums)

    def _over_ranks(self, sums: _Sums) -> _Sums:
        if not self.ddp:
            return sums
        parts = dt.tensor([sums.loss, sums.right, sums.answers], dtype=dt.float64)
        dt.distributed.all_reduce(parts)
        return _Sums(*parts.tolist())

    def _log_train(self, report: Reporter, means: dict[str, float]) -> None:
        if not math.isfinite(means["loss"]):
            raise FloatingPointError(
                f"train: the loss is {means['loss']} at step {self.step} of epoch "
                f"{self.epoch + 1}. Lower optim.lr, or set optim.clip_norm"
            )
        rate = {"lr": self.scheduler.get_last_lr()[0], "samples_per_second": report.progress.rate}
        report.record("train", self.step, self.epoch + 1, {**means, **rate})

    # -- the end of an epoch -----------------------------------------------------------------------

    def _end_epoch(
        self, report: Reporter, trained: dict[str, float], tested: dict[str, float]
    ) -> None:
        self.epoch += 1
        self.train_loss, self.test_accuracy = trained["loss"], tested["accuracy"]
        report.record("test", self.step, self.epoch, tested)
        keep = self.settings.log.keep_checkpoints
        checkpoint.save(self.run, self.epoch, self._state(), keep)
        epochs = self.settings.train.epochs
        report.progress.say(
            f"epoch {self.epoch}/{epochs} done  {self.epoch / epochs:4.0%}  "
            f"loss {self.train_loss:.4f}  test loss {tested['loss']:.4f}  "
            f"test accuracy {self.test_accuracy:.4f}  {report.progress.rate:,.0f} samples/s"
        )

    def _state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
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

    def _sample(self, report: Reporter) -> None:
        log = self.settings.log
        if self.run is not None and self.task.alphabet and log.sample:
            text = write_text(self.model, self.task.alphabet, log.sample, self.settings.seed)
            report.text("sample", text, self.step)
            report.progress.say(f"--- sample ---\n{text}\n--------------")


def _check_same(path: Path, saved: str, settings: Settings) -> None:
    """A run goes on with the seed, the data, the model and the optimizer that it began with."""
    before, now = _flat(tomllib.loads(saved)), _flat(config.to_dict(settings))
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
