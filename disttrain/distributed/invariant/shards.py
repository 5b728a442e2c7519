"""Which virtual shards a rank computes, which one is next, and the random stream of each.

Pure counting: knows no tensor and no group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ConfigError

DEFAULT_COUNT = 8


class VirtualShards:
    """``count`` shards of every step, divided between ``size`` ranks.

    ``step`` is the number of steps that are done, ``index`` how many of this rank's ``each``
    shards of the current one. ``strided``: rank r computes shards r, r + size ..., so that the
    shards which all ranks compute at the same time are neighbours; else it computes neighbours.

    Raises ``ConfigError`` unless ``size`` divides ``count`` and what is joined first (a rank's own
    shards, or with ``strided`` those of all ranks at one time) is a power of two of neighbours.
    """

    def __init__(
        self, count: int, rank: int, size: int, seed: int = 0, strided: bool = False
    ) -> None:
        if count < 1 or count % size:
            raise ConfigError(
                f"virtual_shards: {count} given for {size} ranks; a multiple of the number of "
                f"ranks is needed, like {size * max(1, DEFAULT_COUNT // size)}"
            )
        self.count, self.rank, self.size, self.seed = count, rank, size, seed
        self.each, self.strided = count // size, strided
        inner, outer = (size, self.each) if strided else (self.each, size)
        if inner & (inner - 1) and outer > 1:
            raise ConfigError(self._uneven(inner))
        self.step = self.index = 0

    def _uneven(self, inner: int) -> str:
        """Why ``inner`` shards, which are summed first, do not make a branch of the tree."""
        if self.strided:
            first = f"fully_shard sums the shards of all {self.size} ranks first, step by step"
            way = "Use 1, 2, 4, 8 or more ranks, or DistributedDataParallel, which has no such rule"
        else:
            first = f"each rank sums its own {inner} shards first"
            more = self.size << inner.bit_length()
            way = f"Give virtual_shards={more}, or another power of two for each rank"
        return (
            f"virtual_shards: {self.count} given for {self.size} ranks. {first}, and that must be "
            "a power of two of them: else the sum would depend on the number of ranks, which "
            f'deterministic="global" rules out. {way}'
        )

    @property
    def ids(self) -> range:
        """The shards that this rank computes, in order."""
        if self.strided:
            return range(self.rank, self.count, self.size)
        return range(self.rank * self.each, (self.rank + 1) * self.each)

    @property
    def current(self) -> int:
        """The shard that is computed next."""
        return self.ids[self.index]

    @property
    def last(self) -> bool:
        """Is the next shard this rank's last one of the step?"""
        return self.index == self.each - 1

    @property
    def step_complete(self) -> bool:
        """Are all shards of a step done, so that the optimizer may run?"""
        return self.index == 0

    def advance(self) -> None:
        """A shard is done."""
        self.index += 1
        if self.index == self.each:
            self.index, self.step = 0, self.step + 1

    def stream(self, attempt: int = 0) -> int:
        """The seed of the current shard's random stream: the same on any number of ranks.
        ``attempt``: how many forwards of this shard came before."""
        entropy = np.random.SeedSequence([self.seed, self.step, self.current, attempt])
        return int(entropy.generate_state(1, np.uint64)[0])

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, on any number of ranks. Take it between two steps."""
        if self.index:
            raise ConfigError(
                f"virtual shards: state_dict was called after {self.index} of {self.each} shards "
                "of a step; call it when step_complete is True"
            )
        return {"count": self.count, "seed": self.seed, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another run stopped."""
        if state["count"] != self.count:
            raise ConfigError(
                f"virtual_shards: {self.count} given; the run that is resumed has "
                f"{state['count']}, and its numbers depend on it"
            )
        self.seed, self.step, self.index = int(state["seed"]), int(state["step"]), 0
