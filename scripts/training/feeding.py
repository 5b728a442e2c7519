"""Which samples a rank trains on and which it is tested with, by number of ranks or of shards.

With virtual shards a step is several small batches; without it is one. Test batches are the same
whatever the number of ranks, and every rank runs equally many, because sharded weights are gathered
by all ranks together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import disttrain as dt
from disttrain.distributed.invariant import VirtualShards, VirtualShardSampler
from disttrain.errors import ConfigError

from .datasets import Task
from .settings import Settings

TEST_BATCH = 64


class Feed:
    """The batches of one rank: ``rank`` of ``size`` that see different samples."""

    def __init__(
        self,
        settings: Settings,
        task: Task,
        rank: int,
        size: int,
        shards: VirtualShards | None = None,
        uneven: bool = False,
    ) -> None:
        """``uneven``: the batch need not be divided by ranks: what is left over is not used."""
        data = settings.data
        self.batch_size = data.batch_size
        self.rank, self.size, self.shards = rank, size, shards
        self._check(data.batch_size, len(task.train), uneven)
        if shards is None:
            self.sampler: Any = dt.data.DistributedSampler(
                task.train, size, rank, seed=settings.seed, drop_last=True
            )
            how: dict[str, Any] = {"batch_size": data.batch_size // size, "drop_last": True}
            how["sampler"] = self.sampler
        else:
            self.sampler = VirtualShardSampler(
                task.train, shards, data.batch_size, seed=settings.seed
            )
            how = {"batch_sampler": self.sampler}
        self.loader = dt.data.DataLoader(task.train, num_workers=data.num_workers, **how)
        whole = len(task.train) // data.batch_size
        self.per_epoch = min(whole, settings.train.steps_per_epoch or whole)
        self.num_tests = -(-len(task.test) // TEST_BATCH)
        self.test_loader = dt.data.DataLoader(
            task.test, batch_sampler=self._test_batches(len(task.test))
        )

    def _check(self, batch_size: int, num_samples: int, uneven: bool) -> None:
        parts, what = self.size, "ranks"
        if self.shards is not None:
            parts, what = self.shards.count, "virtual shards"
        if batch_size % parts and not (uneven and batch_size >= parts):
            raise ConfigError(
                f"data.batch_size: {batch_size} given for {parts} {what}; "
                f"a multiple of {parts} is needed (it counts all ranks together)"
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
    def samples(self) -> int:
        """Samples that all ranks take in one step."""
        each = self.size if self.shards is None else self.shards.count
        return self.batch_size // each * each

    def place(self, number: int) -> int:
        """The place of this rank's batch ``number`` among all of a step."""
        return self.rank if self.shards is None else self.shards.ids[number]

    def steps(self, epoch: int, done: int = 0) -> Iterator[list]:
        """The epoch's steps: this rank's batches of each. ``done``: steps that the state which was
        given to ``loader.load_state_dict`` has behind it."""
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
