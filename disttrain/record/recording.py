"""``with dt.record(folder):`` and ``dtrun --record``: when a rank records, and where to."""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import context, settings
from ..errors import ConfigError
from ..nn.global_hooks import register_module_forward_hook, register_module_forward_pre_hook
from ..optim.state import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from . import rows
from .log.opening import CHECKER_SLOT, Keeping
from .log.surroundings import program
from .operations import Operations
from .recorder import MODULES, OPS, SLOT, Recorder
from .rows import LEVELS, Writer
from .verbs import STAND_INS


class record:  # noqa: N801  (used like a function)
    """Record what the calling rank computes into ``folder``, for ``disttrain diff``.

    ``level``: "collectives" (what groups and loaders bring, settings of optimizers), "modules"
    (also results of modules, their gradients, and parameters), or "ops" (also every operation and
    every node of backward). ``steps``: (first, end) of those to record, by the steps of the first
    optimizer that steps; None: all. ``ranks``: those that record; None: all. ``first_step``: the
    number of the step that comes next, where a run is resumed. ``payloads``: keep the bytes that
    collectives bring, too.

    Operations of the calling thread are recorded, and of the walks that it runs. Compiled functions
    run as the programs that they were made from. The results are the same bits as without.
    """

    def __init__(
        self, folder: str | os.PathLike, level: str = "ops", *,
        steps: tuple[int, int] | None = None, ranks: Iterable[int] | None = None,
        payloads: bool = False, first_step: int = 0,
    ) -> None:  # fmt: skip
        if level not in LEVELS:
            raise ConfigError(
                f"record: level={level!r} given; one of {', '.join(LEVELS)} is needed"
            )
        if steps is not None and not (len(steps) == 2 and 0 <= steps[0] < steps[1]):
            raise ConfigError(
                f"record: steps={steps!r} given; (first, end) with first < end is needed"
            )
        self.folder, self.level = os.fspath(folder), level
        self.steps = None if steps is None else (int(steps[0]), int(steps[1]))
        self.ranks = None if ranks is None else frozenset(ranks)
        self.payloads, self.first_step = payloads, first_step
        self.recorder: Recorder | None = None
        self._operations: Operations | None = None
        self._handles: list[Any] = []
        self._steps_of: int | None = None  # the optimizer whose steps count
        self._log: Keeping | None = None

    def __enter__(self) -> record:
        me = context.current()
        if SLOT in me.slots:
            raise ConfigError(
                f"record: this rank records already, into {me.slots[SLOT].writer.folder}"
            )
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise _unwritable(self.folder, error) from None
        if self.ranks is not None and me.rank not in self.ranks:
            return self
        checker = me.slots.get(CHECKER_SLOT)
        writer = self._opened(me) if checker is None else checker(self.folder, me.rank)
        self.recorder = to = Recorder(writer, LEVELS.index(self.level), self.first_step)
        me.slots[SLOT] = me.slots[context.REPEATABLE_SLOT] = to
        STAND_INS.join()
        self._kept = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        self._look()
        return self

    def __exit__(self, *exc: object) -> None:
        to, self.recorder = self.recorder, None
        if to is None:
            return
        self._off(to)
        for handle in self._kept:
            handle.remove()
        STAND_INS.leave()
        to.writer.close()
        if self._log is not None:
            self._log.end(to.writer.count)
        for slot in (SLOT, context.REPEATABLE_SLOT):
            context.current().slots.pop(slot, None)

    def _opened(self, me: context.Rank) -> Writer:
        """The files of the rank, new."""
        try:
            rows.clear(self.folder, me.rank, me.world_size, self.ranks)
            rows.write_about(self.folder, self._about(me))
            writer = Writer(self.folder, me.rank)
            if self.payloads:
                log = Keeping(self.folder, me.rank)
                log.begin()
                self._log = log
            return writer
        except OSError as error:
            raise _unwritable(self.folder, error) from None

    def _about(self, me: context.Rank) -> dict[str, Any]:
        words, is_module, *_ = program()
        main = None if is_module else words[0]
        return {
            "world": me.world_size, "level": self.level, "steps": self.steps,
            "first_step": self.first_step, "argv": list(sys.argv), "program": main,
            "code": _hash_of(main),
            "versions": {
                "python": sys.version.split()[0], "numpy": np.__version__,
                "disttrain": sys.modules["disttrain"].__version__,
            },
        }  # fmt: skip

    # -- steps ---------------------------------------------------------------------------------

    def _look(self) -> None:
        """Record, or not, as the step says."""
        to = self.recorder
        assert to is not None
        wanted = self.steps is None or self.steps[0] <= to.step < self.steps[1]
        if wanted and not to.on:
            self._on(to)
        elif to.on and not wanted:
            self._off(to)

    def _on(self, to: Recorder) -> None:
        to.on, to.begun = True, False
        if to.level >= MODULES:
            self._handles = [
                register_module_forward_pre_hook(self._enter),
                register_module_forward_hook(self._leave, always_call=True),
            ]
        if to.level >= OPS:
            self._operations = Operations(to)
            context.thread.stack.append(self._operations)
            context.thread.refresh()

    def _off(self, to: Recorder) -> None:
        to.on, to.part = False, None
        to.stack.clear()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._operations in context.thread.stack:
            context.thread.stack.remove(self._operations)
            context.thread.refresh()
        self._operations = None
        to.writer.flush()

    def _before_step(self, optimizer: Any, *rest: object) -> None:
        to = self.recorder
        if to is not None and to.on:
            to.stepping = True
            to.grads(optimizer)

    def _after_step(self, optimizer: Any, *rest: object) -> None:
        to = self.recorder
        if to is None:
            return
        if to.on:
            to.stepped(optimizer)
        to.stepping = False
        if self._steps_of is None:
            self._steps_of = id(optimizer)
        if self._steps_of == id(optimizer):
            to.step += 1
            to.writer.flush()
            if self._operations is not None:
                self._operations.forget()
            if self._log is not None:
                self._log.stepped(to.step)
            self._look()

    # -- modules -------------------------------------------------------------------------------

    def _enter(self, module: Any, args: tuple) -> None:
        to = self.recorder
        if to is not None and to.on:
            to.enter(module, args)

    def _leave(self, module: Any, args: tuple, out: Any) -> None:
        to = self.recorder
        if to is not None and to.on:
            to.leave(module, args, out)


def _unwritable(folder: str, error: OSError) -> ConfigError:
    return ConfigError(f"record: {folder} cannot be written into: {error}; name another folder")


def _hash_of(path: str | None) -> str:
    """Of the program's file."""
    try:
        with open(path or "", "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def begin() -> None:
    """Record this rank from now on to its end, where the settings say so (``dtrun --record``)."""
    folder = settings.RECORD_FOLDER.text()
    if not folder:
        return
    generation = int(settings.GENERATION.text() or 0)
    if generation > 1:
        folder = os.path.join(folder, f"attempt_{generation - 1}")
    found = record(
        folder, settings.RECORD.text(), steps=parse_steps(settings.RECORD_STEPS.text()),
        ranks=parse_ranks(settings.RECORD_RANKS.text()),
        payloads=settings.RECORD_PAYLOADS.flag(),
    )  # fmt: skip
    found.__enter__()
    atexit.register(found.__exit__)


def parse_steps(text: str) -> tuple[int, int] | None:
    """``A:B``; nothing: None."""
    if not text:
        return None
    first, colon, end = text.partition(":")
    if not (colon and first.isdigit() and end.isdigit() and int(first) < int(end)):
        raise ConfigError(f"record: steps {text!r} given; A:B with A < B is needed, as 100:110")
    return int(first), int(end)


def parse_ranks(text: str) -> tuple[int, ...] | None:
    """``0,3``; nothing: None."""
    if not text:
        return None
    if not all(part.strip().isdigit() for part in text.split(",")):
        raise ConfigError(f"record: ranks {text!r} given; numbers such as 0,3 are needed")
    return tuple(int(part) for part in text.split(","))


__all__ = ["begin", "parse_ranks", "parse_steps", "record"]
