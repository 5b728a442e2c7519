"""Batches of samples by virtual shard: every shard gets the same ones whoever computes it."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np

from ...errors import ConfigError
from .shards import VirtualShards


class VirtualShardSampler:
    """The batches of this rank's virtual shards: ``shards.each`` small ones per step.

    For ``DataLoader(dataset, batch_sampler=...)``. ``batch_size`` counts the samples of all
    shards together and is a multiple of ``shards.count``. What does not fill a step is left out,
    or without ``drop_last`` filled with the first samples of the epoch. Call ``set_epoch`` before
    each epoch, else every epoch has the same order.
    """

    def __init__(
        self,
        dataset: Sized,
        shards: VirtualShards,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
    ) -> None:
        if batch_size < 1 or batch_size % shards.count:
            raise ConfigError(
                f"VirtualShardSampler: batch_size {batch_size} given; a multiple of the "
                f"{shards.count} virtual shards is needed"
            )
        self.dataset, self.shards, self.batch_size = dataset, shards, batch_size
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        self._start = self._began = 0  # steps that are passed over: of the next pass, of this one

    @property
    def num_steps(self) -> int:
        """Steps of an epoch."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __len__(self) -> int:
        return self.num_steps * self.shards.each

    def __iter__(self) -> Iterator[list[int]]:
        self._began, self._start = self._start, 0
        return self._batches()

    def _batches(self) -> Iterator[list[int]]:
        order = np.arange(len(self.dataset))
        if self.shuffle:
            rng = np.random.Generator(np.random.SFC64((self.seed + self.epoch) % (1 << 64)))
            order = rng.permutation(len(order))
        steps = np.resize(order, (self.num_steps, self.shards.count, self._per_shard))
        for step in steps[self._began :]:
            for shard in self.shards.ids:
                yield step[shard].tolist()

    @property
    def _per_shard(self) -> int:
        return self.batch_size // self.shards.count

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of ``epoch``."""
        if epoch != self.epoch:
            self._start = 0
        self.epoch = epoch

    def state_at(self, count: int) -> dict[str, int]:
        """For ``load_state_dict``, when ``count`` batches of this pass were used; between two steps
        it fits any number of ranks."""
        steps, rest = divmod(count, self.shards.each)
        if rest:
            raise ConfigError(
                f"VirtualShardSampler: its place was asked for after {rest} of "
                f"{self.shards.each} shards of a step; ask for it between two steps"
            )
        return {"epoch": self.epoch, "steps": self._began + steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """The next pass goes on there."""
        self.epoch, self._start = int(state["epoch"]), int(state["steps"])
