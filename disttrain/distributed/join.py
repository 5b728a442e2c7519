"""Training on uneven inputs: ranks that have no more take part in what the others still do.

``Join`` is the block around the loop; what takes part in it is a ``Joinable`` (a wrapped model, a
sharded optimizer), which says by a ``JoinHook`` what a rank without input does in each iteration of
the others. Knows groups; no gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..comm.calls.work import Work
from ..comm.group.group import ProcessGroup
from ..errors import CommError, ConfigError
from ..trace import warn

_SKEW = 1000


class JoinHook:
    """What a rank that has no more input does."""

    def main_hook(self) -> None:
        """Once for each iteration of those that still have input: the same communication."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """When all are through. ``is_last_joiner``: this rank was among the last to have input."""


class _JoinConfig(NamedTuple):
    """What a Joinable knows of the block that it is in."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        return _JoinConfig(False, False, False)


class Joinable(ABC):
    """Something that communicates in each iteration, and can do so for a rank without input.

    Subclasses call ``Join.notify_join_context(self)`` before the communication of an iteration.
    """

    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs: object) -> JoinHook:
        """The hook for this object, from the keyword arguments of ``Join``."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device on which it communicates."""

    @property
    @abstractmethod
    def join_process_group(self) -> ProcessGroup:
        """The group in which it communicates."""


class Join:
    """``with Join([model, optimizer]):`` around a training loop with uneven inputs.

    A rank that leaves the block shadows the iterations of the others until all have left.
    ``throw_on_early_termination``: instead, all ranks raise ``CommError`` as soon as one has no
    more input. ``enable=False``: the block does nothing. Other arguments go to ``join_hook`` of
    each joinable; all of these share one group.
    """

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ConfigError("Join: The join context manager requires at least one joinable")
        self._joinables = list(joinables)
        self._enable, self._throw = enable, throw_on_early_termination
        self._join_hooks = [j.join_hook(**kwargs) for j in self._joinables]
        groups = [j.join_process_group for j in self._joinables]
        if any(g is not groups[0] for g in groups):
            raise ConfigError(
                "Join: Using join context manager with multiple process groups; all joinables must "
                "communicate in one group"
            )
        self._group = groups[0]
        for k, joinable in enumerate(self._joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, k == 0)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type | None, value: CommError | ZeroDivisionError | None, traceback: Any
    ) -> None:
        try:
            if self._enable and kind is None:
                self._shadow()
        finally:
            for joinable in self._joinables:
                joinable._join_config = _JoinConfig.construct_disabled_join_config()

    def _shadow(self) -> None:
        """Take part until nobody has input."""
        last, rounds = True, 0
        while self._num_active():
            if self._throw:
                _reduce(self._group, 1)
                rank = self._group.ranks[self._group.rank]
                raise CommError(f"Join: Rank {rank} exhausted all inputs.")
            last = False
            for hook in self._join_hooks:
                hook.main_hook()
            rounds += 1
            if rounds == _SKEW + 1:
                self._warn()
        for hook in self._join_hooks:
            hook.post_hook(last)

    def _num_active(self) -> int:
        return _reduce(self._group, 0)

    def _warn(self) -> None:
        rank = self._group.ranks[self._group.rank]
        warn(
            "Join: Detected uneven input skew of greater than "
            f"{_SKEW}. This means that rank {rank} has at least {_SKEW} fewer inputs than other "
            "currently-active ranks. This level of skew could lead to performance degradation "
            "during training.",
        )

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Work | None:
        """Tell the ranks without input that this one has some; before an iteration communicates.

        The work's result is an array with the number of ranks that have some (None outside a block,
        and for all joinables of it but the first).
        """
        config = joinable._join_config
        if not (config.enable and config.is_first_joinable):
            return None
        group = joinable.join_process_group
        work = group.all_reduce(np.ones(1, np.int64), async_op=True)
        if config.throw_on_early_termination and _reduce(group, 0):
            raise CommError(
                "Join: Detected at least one rank that exhausted inputs. Throwing across all ranks."
            )
        return work


def _reduce(group: ProcessGroup, value: int) -> int:
    total = np.array([value], np.int64)
    group.all_reduce(total)
    return int(total[0])
