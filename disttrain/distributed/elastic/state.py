"""What a training run is made of, kept in memory as of the last commit, and given to newcomers.

Every rank has the same: a replica. So whoever is left can go on from its own copy, and one that is
new, or a commit behind, gets that of a rank that is furthest. Knows ranks and values; who calls
when is ``running``'s.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ... import context
from ...comm import survivors, termination
from ...comm.control import JOB_SLOT
from ...core.random import get_rng_state, set_rng_state
from ...core.tensor import Tensor
from ...errors import ConfigError
from .. import objects
from ..state import group_or_default, is_initialized
from .stopping import agreed


class Regroup(Exception):  # noqa: N818  (no error: it ends a call of the program's function)
    """Processes wait to join: all ranks leave the function that they run, and make a group."""


class State:
    """``State(model=model, optimizer=optimizer, step=0)``: attributes of these names.

    What has ``state_dict`` and ``load_state_dict`` (modules, optimizers, schedulers, samplers,
    loaders) is kept by means of these, the rest by copies. All of it must be the same on every
    rank after each step: shards of parameters die with their rank, so a DTensor is refused
    (``TypeError``); restart such jobs from checkpoints (``dtrun --max-restarts``).

    ``commits`` counts the commits. ``ending``: the job was asked to end (SIGTERM under ``dtrun
    --on-term checkpoint``), known to all ranks since the same commit.
    """

    def __init__(self, **kept: Any) -> None:
        for name in kept:
            if hasattr(type(self), name) or name.startswith("_"):
                raise ConfigError(
                    f"elastic.State: {name}= was given, which is a name of State's own; "
                    "choose another one"
                )
        self._names = tuple(kept)
        self.__dict__.update(kept)
        self._commits, self._ending = 0, False
        self._saved: dict[str, Any] = {}
        self._rng: Any = None

    @property
    def commits(self) -> int:
        return self._commits

    @property
    def ending(self) -> bool:
        return self._ending

    def commit(self) -> None:
        """Keep everything as it is now: what is committed is lost only with all ranks.

        Every rank calls it after the same steps. Where processes wait to join, it does not return:
        ``run`` calls its function again, with them.
        """
        self._commits += 1
        self._save()
        if not is_initialized():
            self._ending = termination.requested()
            return
        job = context.current().slots.get(JOB_SLOT)
        waiting = job is not None and bool(survivors.newcomers(survivors.as_view(job)))
        self._ending, regroup = agreed(None, [termination.requested(), waiting])
        if regroup and not self._ending:
            raise Regroup

    def restore(self) -> None:
        """Everything as of the last commit."""
        for name, value in self._saved.items():
            here = getattr(self, name)
            if _is_holder(here):
                here.load_state_dict(_copied(value))
            else:
                setattr(self, name, _copied(value))
        if self._rng is not None:
            set_rng_state(self._rng)

    def begin(self) -> None:
        """What there is before the first commit is to be gone back to, too."""
        if not self._saved:
            self._save()

    def sync(self) -> None:
        """All ranks of the default group call it: everything as of the newest commit of any."""
        self.begin()
        group = group_or_default()
        told = np.empty(group.size, np.int64)
        group.all_gather_single(told, np.array([self._commits], np.int64))
        newest = int(told.max())
        source = int(told.argmax())
        behind = [r for r in range(group.size) if (told[r] < newest or not newest) and r != source]
        if group.rank == source:
            for rank in behind:
                objects.send(group, [self._saved], rank)
        elif group.rank in behind:
            self._saved = objects.recv(group, source)[0][0]
            self._commits = newest
        self.restore()

    def _save(self) -> None:
        saved = {}
        for name in self._names:
            value = getattr(self, name)
            value = value.state_dict() if _is_holder(value) else value
            saved[name] = _copied(value, self._saved.get(name), name)
        self._saved, self._rng = saved, get_rng_state()


def _is_holder(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _copied(value: Any, into: Any = None, where: str = "") -> Any:
    """A copy that shares nothing with ``value``; tensors are written into those of ``into``, an
    earlier copy, where they fit."""
    if isinstance(value, Tensor):
        if getattr(value, "placements", None) is not None:
            raise TypeError(
                f"elastic.State: {where} holds a DTensor; needed are values that every rank has "
                "whole. Restart sharded jobs from checkpoints (dtrun --max-restarts N)"
            )
        held: Any = value.detach()
        fits = isinstance(into, Tensor) and into is not value
        if fits and (into.shape, into.dtype, into.device) == (held.shape, held.dtype, held.device):
            return into.copy_(held)
        return held.clone()
    if isinstance(value, dict):
        old = into if isinstance(into, dict) else {}
        items = {k: _copied(v, old.get(k), where) for k, v in value.items()}
        return items if type(value) is dict else _like(value, items)
    if type(value) in (list, tuple):
        before = into if isinstance(into, (list, tuple)) and len(into) == len(value) else None
        each = (None if before is None else before[i] for i in range(len(value)))
        return type(value)([_copied(v, old, where) for v, old in zip(value, each, strict=True)])
    return copy.deepcopy(value)


def _like(value: dict, items: dict) -> dict:
    """A kind of dict (a state dict, with what it tells of versions) with ``items``."""
    made = copy.copy(value)
    made.clear()
    made.update(items)
    return made
