"""What a training run is made of, kept in memory as of the last commit, and given to newcomers.

Every rank has the same: a replica. So whoever is left can go on from its own copy, and one that is
new, or a commit behind, gets that of a rank that is furthest. Knows ranks and values; who calls
when is ``running``'s.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ... import context
from ...comm.job import termination
from ...comm.job.segment import JOB_SLOT
from ...comm.meeting import survivors
from ...core.grad_mode import no_grad
from ...core.random import get_rng_state, set_rng_state
from ...core.tensor import Tensor
from ...errors import CommError, ConfigError
from ..collectives import objects
from ..groups.state import group_or_default, is_initialized
from . import kept as kept_memory
from .stopping import agreed


class Regroup(Exception):  # noqa: N818  (no error: it ends a call of the program's function)
    """Processes wait to join: all ranks leave the function that they run, and make a group."""


class State:
    """``State(model=model, optimizer=optimizer, step=0)``: attributes of these names.

    What has ``state_dict`` and ``load_state_dict`` (modules, optimizers, schedulers, samplers,
    loaders) is kept by means of these, the rest by copies. All of it must be the same on every
    rank after each step: shards of parameters die with their rank, so a DTensor is refused
    (``TypeError``); restart such jobs from checkpoints (``dtrun --max-restarts``). Gradients are
    not kept: a commit is made where they have been used.

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
        self._kept = kept_memory.of_this_rank()
        self._shared = False  # is what is saved that of all ranks?

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
        self._save()
        self._commits += 1
        self._keep()
        if not is_initialized():
            self._ending = termination.requested()
            return
        job = context.current().slots.get(JOB_SLOT)
        waiting = job is not None and bool(survivors.newcomers(survivors.as_view(job)))
        self._ending, regroup = agreed(None, [termination.requested(), waiting])
        if regroup and not self._ending:
            raise Regroup

    def restore(self) -> None:
        """Everything as of the last commit; what was under way since is dropped: gradients, and
        what a ``GradScaler`` has seen of them."""
        for name, value in self._saved.items():
            here = getattr(self, name)
            if _is_holder(here):
                here.load_state_dict(_copied(value))
                _break_off(here)
            else:
                setattr(self, name, _put_back(value, here))
        if self._rng is not None:
            set_rng_state(self._rng)

    def begin(self) -> None:
        """What there is before the first commit is to be gone back to, too."""
        if not self._saved:
            self._save()
            self._recall()

    def sync(self, caller: str = "") -> None:
        """All ranks of the default group call it: everything as of the newest commit of any; at
        first, as rank 0 has it, or the first rank that is no newcomer.

        ``caller``: for which function, which must be the same: a process that was started anew may
        come to another one than the others are in. It gets ``CommError`` then.
        """
        self.begin()
        group = group_or_default()
        told = np.empty((group.size, 2), np.int64)
        mine = [self._standing(), zlib.crc32(caller.encode())]
        group.all_gather_single(told, np.array(mine, np.int64))
        source = int(told[:, 0].argmax())
        if told[group.rank, 1] != told[source, 1]:
            raise CommError(
                f"elastic.run: rank {group.rank} calls {caller}(), and rank {source} is in another "
                "function; one that takes a lost rank's place has to come to that one first. Give "
                "the script one function of elastic.run, which calls the others"
            )
        standing = told[:, 0]
        behind = np.flatnonzero(standing != standing[source])
        if standing[source] < _SHARED:
            behind = np.delete(np.arange(group.size), source)
        behind = behind[told[behind, 1] == told[source, 1]]
        if group.rank == source:
            for rank in behind.tolist():
                objects.send(group, [(self._commits, self._saved)], rank)
        elif group.rank in behind:
            self._commits, self._saved = objects.recv(group, source)[0][0]
        self._shared = True
        self.restore()

    def _keep(self) -> None:
        """For processes that take this one's place, where the launcher has a place for it."""
        first = self._kept.local == 0  # what is the same on all ranks need be there once
        self._kept.put(self._commits, [self._saved if first else None, self._rng])

    def _recall(self) -> None:
        """Take up what processes have committed in whose place this one is."""
        found = self._kept.newest(0)
        if found is None or not isinstance(found[1][0], dict):
            return
        commits, (saved, _) = found
        if saved.keys() != self._saved.keys():
            return  # of another function's state
        self._commits, self._saved, self._shared = commits, saved, True
        mine = self._kept.newest(self._kept.local)
        if mine is not None and mine[0] == commits:
            self._rng = mine[1][1]

    def _standing(self) -> int:
        """Who has the highest gives what it has to those that have a lower one."""
        me = context.current()
        job = me.slots.get(JOB_SLOT)
        newcomer = job is not None and job.slot(me.rank).turn > 0
        return _SHARED * self._shared + 2 * self._commits + (not newcomer)

    def _save(self) -> None:
        """First all is asked for, which may raise, then the copies of before are overwritten."""
        kept = {name: getattr(self, name) for name in self._names}
        kept = {n: v.state_dict() if _is_holder(v) else v for n, v in kept.items()}
        for name, value in kept.items():
            kept[name] = _copied(value, self._saved.get(name), name)
        self._saved, self._rng = kept, get_rng_state()


_SHARED = 1 << 60  # more than any number of commits


def _is_holder(value: object) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _put_back(value: Any, here: object) -> Any:
    """A copy of ``value`` for the program, whose own parameters stay the objects that they are."""
    if isinstance(value, Tensor):
        if not (isinstance(here, Tensor) and here.requires_grad and here.is_leaf):
            return _copied(value)
        here.grad = None
        if (here.shape, here.dtype, here.device) == (value.shape, value.dtype, value.device):
            own: Any = here
            with no_grad():
                return own.copy_(value)
        return _copied(value).requires_grad_()
    if isinstance(value, dict):
        old = here if isinstance(here, dict) else {}
        items = {k: _put_back(v, old.get(k)) for k, v in value.items()}
        return items if type(value) is dict else _like(value, items)
    if type(value) in (list, tuple):
        before = here if isinstance(here, (list, tuple)) and len(here) == len(value) else None
        each = (None if before is None else before[i] for i in range(len(value)))
        return type(value)([_put_back(v, old) for v, old in zip(value, each, strict=True)])
    return _copied(value)


def _break_off(holder: object) -> None:
    """Let ``holder`` forget the step that it was in."""
    if hasattr(holder, "break_off"):
        holder.break_off()
    for parameter in _parameters(holder):
        parameter.grad = None


def _parameters(holder: Any) -> Iterable[Any]:
    """Of a module, or of an optimizer."""
    if callable(getattr(holder, "parameters", None)):
        return holder.parameters()
    groups = getattr(holder, "param_groups", ())
    return [p for group in groups for p in group["params"]]


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
