"""What one rank records: where it is (step, module, phase), and the rows that it adds.

Knows what a row says; not who calls it (``operations``, ``hooks``, ``verbs``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from .. import context
from ..core import Tensor
from ..core.node import Output
from ..nn import Module
from . import rows
from .names import Names, Sites, is_sharded, kind_of
from .rows import LEVELS, Measure, Writer
from .values import Known, array_of, measure, shape_of, shape_text, tensors

SLOT = "record"  # of a rank's context
COLLECTIVES, MODULES, OPS = range(len(LEVELS))


class Recorder:
    """Adds rows to ``writer`` while ``on``."""

    def __init__(self, writer: Writer, level: int, first_step: int) -> None:
        self.writer, self.level, self.step = writer, level, first_step
        self.on = self.stepping = False
        self.names, self.sites, self.known = Names(), Sites(writer.text), Known()
        self.stack: list[tuple[Module, int]] = []  # the modules that run, with their paths
        self.part: tuple[int, int] | None = None  # of the batch that all ranks have
        self.told = False  # that compiled functions run as programs
        self.begun = False  # whether parameters were shown since this was on
        self.numbers: dict[str, int] = {}  # collectives of each group
        self._shapes: dict[tuple, int] = {}

    @property
    def phase(self) -> int:
        if context.thread.walking is not None:
            return rows.BACKWARD
        return rows.OPTIMIZER if self.stepping else rows.FORWARD

    @property
    def module(self) -> int:
        """The path of the innermost module that runs, as a text's number."""
        return self.stack[-1][1] if self.stack else 0

    def shape(self, array: Any) -> int:
        """The number of the text that says an array's type and shape."""
        key = shape_of(array)
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = self.writer.text(shape_text(array))
        return found

    def put(
        self, kind: int, name: str, found: Measure, shape: int = 0, *, module: int | None = None,
        site: int = 0, about: str = "", inputs: tuple[int, ...] = (), phase: int | None = None,
    ) -> int:  # fmt: skip
        """Add a row."""
        text = self.writer.text
        texts = (
            text(name), self.module if module is None else module, site, shape, text(about)
        )  # fmt: skip
        now = self.phase if phase is None else phase
        return self.writer.put(kind, now, self.step, texts, found, inputs)

    def value(self, kind: int, name: str, t: Any, **how: Any) -> None:
        """Add a row of a tensor or an array."""
        array = array_of(t)
        self.put(kind, name, measure(array), self.shape(array), **how)

    def text(self, kind: int, name: str, text: str, **how: Any) -> None:
        """Add a row of something that is a text."""
        self.put(kind, name, Measure(text_hash(text)), about=text, **how)

    # -- modules -------------------------------------------------------------------------------

    def enter(self, module: Module, given: object) -> None:
        """``module`` begins to run."""
        root = self.stack[0][0] if self.stack else module
        path = self.writer.text(self.names.path(module, root))
        if not self.stack and context.thread.walking is None:
            self.begin(module, given)
        self.stack.append((module, path))
        if self.part is None:
            self.part = _part_of(module)

    def begin(self, root: Module, given: object) -> None:
        """The outermost module is called: what it starts from."""
        self.names.learn(root)
        first, self.begun = not self.begun, True
        self.random("before the model runs", None)
        for i, t in enumerate(tensors(given)):
            self.value(rows.DATA, f"input {i} of the model", t, module=0)
        kept = [*root.named_parameters()] if first else []
        for name, t in [*kept, *self.names.buffers(root)]:
            self.value(rows.STATE, self.names.of(t, name), t, module=0)

    def leave(self, module: Module, given: object, out: object) -> None:
        """``module`` has given ``out`` (None: it has raised)."""
        while self.stack and self.stack[-1][0] is not module:
            self.stack.pop()
        if not self.stack:
            return
        path = self.stack[-1][1]
        if out is not None:
            self._results(module, path, given, out)
        self.stack.pop()
        if not self.stack:
            self.part = None

    def _results(self, module: Module, path: int, given: object, out: object) -> None:
        inputs = tuple([self.hash(t) for t in tensors(given)])
        name = kind_of(module)
        for i, t in enumerate(tensors(out)):
            array = array_of(t)
            found = self.known.get(t, array, self.part)
            about = f"output {i}" if i else ""
            self.put(rows.MODULE, name, found, self.shape(array), module=path, about=about,
                     inputs=inputs)  # fmt: skip
            node = t._node
            if node is not None and t.requires_grad and not t.is_leaf and not _is_seen(node):
                node.add_tensor_hook(_Gradient(self, name, path, about))

    def hash(self, t: Tensor) -> int:
        """Of what ``t`` is now."""
        array = array_of(t)
        return 0 if array is None else self.known.get(t, array, self.part).hash

    # -- others --------------------------------------------------------------------------------

    def random(self, name: str, generator: Any) -> None:
        """Where a generator is (None: the rank's)."""
        state = context.thread.rank.slots.get("core.random") if generator is None else generator
        if state is None:
            return
        cell = getattr(state, "_cell", state)
        self.put(rows.RANDOM, name, Measure(text_hash(cell.pack())), about=f"seed {cell.seed}")

    def grads(self, optimizer: Any) -> None:
        """An optimizer is about to step."""
        for k, group in enumerate(optimizer.param_groups):
            told = {n: v for n, v in group.items() if n not in ("params", "param_names")}
            text = ", ".join(f"{n}={_setting(v)}" for n, v in sorted(told.items()))
            self.text(rows.SETTINGS, f"{type(optimizer).__name__} group {k}", text, module=0)
            if self.level >= MODULES:
                for name, p in self._named(k, group["params"]):
                    if p.grad is not None:
                        self.value(rows.GRAD, name, p.grad, module=0)

    def stepped(self, optimizer: Any) -> None:
        """It has stepped."""
        if self.level < MODULES:
            return
        for k, group in enumerate(optimizer.param_groups):
            for name, p in self._named(k, group["params"]):
                if p.grad is not None:
                    self.value(rows.PARAMETER, name, p, module=0)
                if self.level >= OPS:
                    self._state(name, optimizer.state.get(p))

    def _state(self, name: str, state: Any) -> None:
        for key, t in (state or {}).items():
            if isinstance(t, Tensor):
                self.value(rows.STATE, f"{name} {key}", t, module=0)

    def _named(self, k: int, params: Iterable) -> list[tuple[str, Any]]:
        of = self.names.of
        return [(of(p, f"parameter {i} of group {k}"), p) for i, p in enumerate(params)]


class _Gradient:
    """The hook that sees the gradient of a module's output."""

    def __init__(self, recorder: Recorder, name: str, path: int, about: str) -> None:
        self.to, self.name, self.path, self.about = recorder, name, path, about

    def __call__(self, g: Any) -> None:
        if self.to.on and g is not None:
            self.to.value(rows.GRADIENT, self.name, g, module=self.path, about=self.about)


def _is_seen(node: Any) -> bool:
    """Whether a module inside, whose output this is, too, looks at its gradient."""
    end = node if isinstance(node, Output) else None
    hooks = (node.node if end is not None else node).tensor_hooks or {}
    kept = hooks.get(0 if end is None else end.index) or {}
    return any(isinstance(hook, _Gradient) for hook in kept.values())


def _part_of(module: Module) -> tuple[int, int] | None:
    """Which part of the batch this rank has, where ``module`` is run in data parallelism."""
    group = module.__dict__.get("process_group")
    if type(module).__name__ == "DistributedDataParallel" and group is not None:
        return int(group.rank), int(group.size)
    if is_sharded(module):
        for p in module.parameters():
            mesh = getattr(array_of(p), "mesh", None)
            if mesh is not None and mesh.ndim == 1:
                return mesh.get_coordinate()[0], int(mesh.ranks.size)
            break
    return None


def text_hash(text: str | bytes) -> int:
    """64 bits of a text."""
    data = text.encode() if isinstance(text, str) else text
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _setting(value: Any) -> str:
    return repr(value.tolist()) if isinstance(value, Tensor) else repr(value)


def active() -> Recorder | None:
    """The calling rank's, where it records now."""
    found: Recorder | None = context.thread.rank.slots.get(SLOT)
    return found if found is not None and found.on else None


__all__ = ["COLLECTIVES", "MODULES", "OPS", "SLOT", "Recorder", "active", "text_hash"]
