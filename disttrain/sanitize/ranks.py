"""What ranks of a data-parallel group have alike, and must not: batches, weights, buffers.

Each rank tells the store of its job hashes of what it has; the first rank of the group compares
them when all are there. Nobody waits for anybody: what has not come by the end is not compared.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from .. import context
from ..core import Tensor
from ..distributed.ddp import DistributedDataParallel
from ..distributed.groups import state
from ..nn import Module
from .places import NOWHERE, Place
from .session import Call, Held, Session, tensors
from .values import hash_of, is_zero

_BATCHES, _MADE = 3, 20  # that are compared: of loaders, and of those that the program makes
_AT = (1, 10, 100, 1000)  # steps at which weights and buffers are
_FLAT = "FullyShardedDataParallel"


class Board:
    """Where ranks leave facts for each other, in the store of their job."""

    def __init__(self) -> None:
        self.store: Any = None
        self.asked = self.opening = False
        self.patience = 5.0  # seconds
        self.left: list[tuple[str, str]] = []

    def open(self) -> None:
        """Have the store, as soon as all ranks have asked for it; nothing waits for that."""
        if self.asked or not state.is_initialized():
            return
        self.asked = True
        if getattr(context.current().waiter, "simulated", False):
            self._open()
        else:
            rank = context.current()
            self.opening = True
            threading.Thread(target=self._opened, args=(rank,), daemon=True).start()

    def _wait(self) -> None:
        """Once, a little, for a store that is being opened: there is something to tell."""
        self.open()
        until, self.patience = time.monotonic() + self.patience, 0.0
        while self.opening and time.monotonic() < until:
            time.sleep(0.01)

    def _opened(self, rank: Any) -> None:
        with context.attach(rank):
            self._open()

    def _open(self) -> None:
        try:
            self.store = state.default_store()
        except Exception:  # there is none: ranks are not compared
            self.store = None
        self.opening = False

    def close(self) -> None:
        """Ask no store whose group is gone: nobody may be there to answer."""
        if self.store is not None and not state.is_initialized():
            self.store = None

    def put(self, key: str, value: str) -> None:
        """Tell the others."""
        self.left.append((f"sanitize/{key}", value))
        self.flush()

    def flush(self) -> None:
        """Give to the store what has waited for it."""
        self.close()
        while self.store is not None and self.left:
            key, value = self.left.pop(0)
            try:
                self.store.set(key, value)
            except Exception:  # the job ends
                self.store = None

    def get(self, keys: list[str]) -> list[str] | None:
        """What the others have told; None as long as one is missing."""
        self.close()
        names = [f"sanitize/{key}" for key in keys]
        try:
            if self.store is None or not self.store.check(names):
                return None
            return [self.store.get(name).decode() for name in names]
        except Exception:  # the job ends
            self.store = None
            return None

    def first(self, key: str) -> bool:
        """Whether the calling rank is the first to say so."""
        self.close()
        self._wait()
        try:
            return self.store is None or self.store.add(f"sanitize/told/{key}", 1) == 1
        except Exception:  # the job ends
            return True


class Ranks:
    """ranks-read-same-data, weights-differ and buffers-differ."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.board = Board()
        session.findings.first_of_all = self.board.first
        self.batches = 0
        self.open: list[tuple[str, str, Place, int]] = []  # that have not been compared
        self.same: dict[int, int] = {}
        self.parallel = False  # the model is wrapped: gradients are averaged
        self.sharded = False
        self.bare: list[Module] = []  # wrapped modules whose buffers nobody brings together

    # -- facts ---------------------------------------------------------------------------------

    def enter(self, call: Call, args: tuple, kwargs: dict) -> None:
        me = context.current()
        if me.world_size < 2 or not state.is_initialized():
            return
        root = call.root
        wrapped = isinstance(root, DistributedDataParallel)
        sharded = type(root).__name__.startswith("FSDP") or type(root).__name__ == _FLAT
        self.parallel |= wrapped
        self.sharded |= sharded
        if wrapped and not root.forward_sync_buffers and root not in self.bare:
            self.bare.append(root)
        if not (wrapped or sharded) or not call.recorded or self.batches >= self._needed():
            return
        ranks = self._ranks(root)
        given = [t for t in [*tensors(args), *tensors(list(kwargs.values()))] if t.numel() > 1]
        if len(ranks) < 2 or not given:
            return
        self.batches += 1
        self._tell("data", self.batches, ranks, str(hash_of(given)), call.place)

    def _needed(self) -> int:
        """How many batches are to be alike. (Benchmarks often make theirs by one seed.)"""
        return _MADE if self.session.loader is None else _BATCHES

    def _ranks(self, root: Module) -> list[int]:
        """Of the group in which batches are to differ; none where that is not known."""
        group = root.__dict__.get("process_group")
        if group is not None and hasattr(group, "ranks"):
            return list(group.ranks)
        arrays = [p.__dict__.get("array") for p in root.parameters()]
        meshes = {tuple(m.ranks.reshape(-1).tolist()): m for a in arrays
                  if (m := getattr(a, "mesh", None)) is not None}  # fmt: skip
        if len(meshes) != 1 or any(m.ndim > 1 for m in meshes.values()):
            return []
        return [int(r) for r in next(iter(meshes))]

    def before_step(self, optimizer: Any, held: Held, closure: bool) -> None:
        me = context.current()
        if me.world_size < 2 or not state.is_initialized():
            return
        number = held.steps + 1
        if number in _AT and not self.sharded and len(self.session.holders()) == 1:
            ranks = list(range(me.world_size))
            grads = [p._grad for p in held.params if isinstance(p._grad, Tensor)]
            wholes = not any(hasattr(p.__dict__.get("array"), "mesh") for p in held.params)
            if wholes and not all(is_zero(g) for g in grads):
                fact = [hash_of(held.params), hash_of(grads), hash_of(self._buffers())]
                self._tell("weights", number, ranks, json.dumps(fact), NOWHERE)
        self.board.flush()
        self._compare()

    def _buffers(self) -> list[Tensor]:
        """Those that nobody brings together."""
        roots = self.bare if self.parallel else list(self.session.names.roots)
        return [
            b for r in sorted(roots, key=lambda r: type(r).__name__) for b in r.buffers()
            if b.dtype.is_floating_point
        ]  # fmt: skip

    def _tell(self, what: str, number: int, ranks: list[int], fact: str, place: Place) -> None:
        me = context.current().rank
        self.board.open()
        name = f"{what}/{number}/{'+'.join(map(str, ranks))}"
        self.board.put(f"{name}/{me}", fact)
        if me == ranks[0]:
            self.open.append((what, name, place, len(ranks)))

    # -- comparison ----------------------------------------------------------------------------

    def _compare(self) -> None:
        left = []
        for row in self.open:
            what, name, place, _ = row
            ranks = [int(r) for r in name.rpartition("/")[2].split("+")]
            facts = self.board.get([f"{name}/{r}" for r in ranks])
            if facts is None:
                left.append(row)
            elif what == "data":
                self._data(ranks, facts, place)
            else:
                self._weights(name, [json.loads(f) for f in facts])
        self.open = left

    def _data(self, ranks: list[int], facts: list[str], place: Place) -> None:
        for rank, fact in zip(ranks[1:], facts[1:]):
            if fact == facts[0]:
                self.same[rank] = self.same.get(rank, 0) + 1
        needed = self._needed()
        alike = [r for r, n in self.same.items() if n >= needed]
        if alike:
            text = f"rank {ranks[0]} and rank {', '.join(map(str, alike))} had the same input in "
            self.session.add("ranks-read-same-data", place, text + f"{needed} calls")

    def _weights(self, name: str, facts: list[list[int]]) -> None:
        alike = [len({f[i] for f in facts}) == 1 for i in range(3)]
        together = self.parallel or alike[1]  # gradients that are equal were averaged
        step = name.split("/")[1]
        if together and not alike[0]:
            odd = [str(r) for r, f in enumerate(facts) if f[0] != facts[0][0]]
            text = f"before step {step} the weights of rank {', '.join(odd)} are not rank 0's"
            self.session.add("weights-differ", self._place(), text)
        elif together and not alike[2] and step != "1":
            text = f"before step {step} buffers of ranks differ"
            self.session.add("buffers-differ", self._place(), text)

    def _place(self) -> Place:
        last = self.session.last
        return NOWHERE if last is None else last.place

    def end(self) -> None:
        self.board.flush()
        self._compare()
        self.board.store = None  # others may have ended


CHECKS = (Ranks,)
__all__ = ["CHECKS", "Board", "Ranks"]
