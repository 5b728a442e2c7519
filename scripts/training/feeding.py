"""Which samples a rank trains on and which it is tested with, by number of ranks or of shards.

The samples of a step are the same on any number of ranks, and so are test batches. With virtual
shards a step is several small batches; without it is one, with a sample more on some ranks where
their number does not divide it. Every rank runs equally many test batches, because sharded weights
are gathered by all ranks together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import disttrain as dt
from disttrain.distributed.invariant import VirtualShards, VirtualShardSampler
from disttrain.errors import ConfigError

from .datasets import Task
from .settings import Settings

TEST_BATCH = 64


class StepSampler(dt.data.Sampler[list[int]]):
    """The part of each step that rank ``rank`` of ``size`` has: every ``size``-th of its
    ``batch_size`` samples. What does not fill a step is left out."""

    def __init__(self, dataset: Sized, batch_size: int, rank: int, size: int, seed: int) -> None:
        self.order = dt.data.DistributedSampler(dataset, 1, 0, seed=seed)
        self.batch_size, self.rank, self.size = batch_size, rank, size
        self._start = self._began = 0  # samples passed over: of the next pass, of this one

    def __len__(self) -> int:
        return len(self.order) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        self._began, self._start = self._start, 0
        order, length = list(self.order), self.batch_size
        for first in range(self._began, len(self) * length, length):
            yield order[first : first + length][self.rank :: self.size]

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of ``epoch``."""
        if epoch != self.order.epoch:
            self._start = 0
        self.order.set_epoch(epoch)

    def state_at(self, count: int) -> dict[str, int]:
        """For ``load_state_dict`` of any number of ranks, when ``count`` steps of this pass were
        used."""
        return {"epoch": self.order.epoch, "taken": self._began + count * self.batch_size}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """The next pass goes on there."""
        self.order.set_epoch(int(state["epoch"]))
        self._start = int(state["taken"])


class Feed:
    """The batches of one rank: ``rank`` of ``size`` that see different samples."""

    def __init__(
        self,
        settings: Settings,
        task: Task,
        rank: int,
        size: int,
        shards: VirtualShards | None = None,
    ) -> None:
        data = settings.data
        self.batch_size = data.batch_size
        self.rank, self.size, self.shards = rank, size, shards
        self._check(data.batch_size, len(task.train))
        if shards is None:
            self.sampler: Any = StepSampler(task.train, data.batch_size, rank, size, settings.seed)
        else:
            self.sampler = VirtualShardSampler(
                task.train, shards, data.batch_size, seed=settings.seed
            )
        self.loader = dt.data.DataLoader(
            task.train, batch_sampler=self.sampler, num_workers=data.num_workers
        )
        whole = len(task.train) // data.batch_size
        self.per_epoch = min(whole, settings.train.steps_per_epoch or whole)
        self.num_tests = -(-len(task.test) // TEST_BATCH)
        self.test_loader = dt.data.DataLoader(
            task.test, batch_sampler=self._test_batches(len(task.test))
        )

    def _check(self, batch_size: int, num_samples: int) -> None:
        if self.shards is not None and batch_size % self.shards.count:
            count = self.shards.count
            raise ConfigError(
                f"data.batch_size: {batch_size} given for {count} virtual shards; "
                f"a multiple of {count} is needed (it counts all ranks together)"
            )
        if batch_size < self.size:
            raise ConfigError(
                f"data.batch_size: {batch_size} given for {self.size} ranks; at least "
                f"{self.size} is needed, a sample for each (it counts all ranks together)"
            )
        if num_samples < batch_size:
            raise ConfigError(
                f"data.batch_size: {batch_size} given; the training data has only "
                f"{num_samples} samples. Lower it, or train on fewer ranks"
            )

    @property
    def each(self) -> int:
        """Batches of this rank in one step."""
        return 1 if self.shards is None else self.shards.each

    @property
    def rows_per_step(self) -> int:
        """Batches of all ranks in one step."""
        return self.size if self.shards is None else self.shards.count

    @property
    def even(self) -> bool:
        """Have all ranks equally many samples of a step?"""
        return self.shards is not None or self.batch_size % self.size == 0

    def place(self, number: int) -> int:
        """The place of this rank's batch ``number`` among all of a step."""
        return self.rank if self.shards is None else self.shards.ids[number]

    def steps(self, epoch: int, done: int = 0) -> Iterator[list]:
        """The epoch's steps: this rank's batches of each. ``done``: steps that were done before, in
        the epoch of the state which was given to ``loader`` or ``sampler``."""
        if done == self.per_epoch:
            return
        self.sampler.set_epoch(epoch)
        step: list = []
        for batch in self.loader:
            step.append(batch)
            if len(step) == self.each:
                yield step
                step, done = [], done + 1
                if done == self.per_epoch:
                    return

    def _test_batches(self, num_samples: int) -> list[list[int]]:
        rounds = -(-self.num_tests // self.size)
        numbers = [min(i * self.size + self.rank, self.num_tests - 1) for i in range(rounds)]
        spans = [(n * TEST_BATCH, min((n + 1) * TEST_BATCH, num_samples)) for n in numbers]
        return [list(range(*span)) for span in spans]

    def tests(self) -> Iterator[tuple[int | None, Any]]:
        """Test batches with their number; None where the rank only keeps the others company."""
        for i, batch in enumerate(self.test_loader):
            number = i * self.size + self.rank
            yield (number if number < self.num_tests else None), batch
