"""The capture of a program that is to be saved: what it does, in which module and line, and for
which sizes. It changes nothing: inputs are copies, and what is written to is put back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from .. import context, tree
from ..compile.capture import Capture
from ..compile.graph import Graph
from ..compile.guards.reach import Reach
from ..compile.memory import is_whole
from ..compile.sized import Unlike
from ..compile.sizes.shapes import Found, generalize
from ..core.gate import Primitive
from ..core.grad_mode import no_grad
from ..core.observers import watched
from ..core.random import fork_rng
from ..core.tensor import Tensor, wrap
from ..errors import CaptureError
from ..nn import Module
from .following import Following

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Fixed(CaptureError):
    """A program whose sizes cannot change."""


class Site(NamedTuple):
    """Where an operation was done."""

    module: str
    line: str


class _Sited(list):
    """Instructions, with their sites."""

    def __init__(self, paths: Mapping[int, str]) -> None:
        super().__init__()
        self.paths, self.sites = paths, list[Site]()

    def append(self, instruction: Any) -> None:
        super().append(instruction)
        self.sites.append(_site(self.paths))


def _site(paths: Mapping[int, str]) -> Site:
    """The module that is running, by its path, and the line of the program."""
    frame: FrameType | None = sys._getframe(2)
    module, line = None, None
    while frame is not None and (module is None or line is None):
        code = frame.f_code
        if line is None and not code.co_filename.startswith(_HERE):
            line = f"{_shown(code.co_filename)}:{frame.f_lineno}"
        if module is None and code.co_varnames[:1] == ("self",) and code.co_argcount:
            module = paths.get(id(frame.f_locals.get("self")))
        frame = frame.f_back
    return Site(module or "", line or "")


@lru_cache(512)
def _shown(path: str) -> str:
    """A file's name as it is told: below the folder of work, or alone."""
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return os.path.basename(path) if relative.startswith("..") else relative


class Recording(Capture):
    """A capture that keeps sites, and can undo writes."""

    def __init__(self, inputs: list[Tensor], around: Reach, paths: Mapping[int, str]) -> None:
        super().__init__(inputs, around)
        self.instructions = self.sited = _Sited(paths)
        self.before: list[tuple[Any, Any]] = []

    def process(self, prim: Primitive, args: tuple, params: dict, proceed: Callable) -> Any:
        for i in prim.mutates:
            array = args[i].__dict__.get("array")
            if isinstance(array, np.ndarray):
                self.before.append((array, array.copy()))
        return super().process(prim, args, params, proceed)

    def _check_layout(self, t: Tensor, prim: Primitive) -> None:
        if not is_whole(t.__dict__.get("array")):
            super()._check_layout(t, prim)

    def pull(self, node: Any, g: object, wanted: tuple | None) -> tuple:
        """Derivatives are computed by operations of their own."""
        if node.seq <= self.start:
            self._refuse("it runs backward through a graph that was made outside")
        found: tuple = node.run(g, True, wanted)
        return found

    def undo(self) -> None:
        """Put back what was written to of what was there before (results stay)."""
        given = {*map(id, self.given)}
        outside = [array for t, array, _, _ in self.old.values() if id(t) not in given]
        outside += [t.array for i, t in enumerate(self.captured) if i not in self.copies]
        for array, was in reversed(self.before):
            if any(isinstance(o, np.ndarray) and np.may_share_memory(array, o) for o in outside):
                np.copyto(array, was)
        self.before.clear()


class Recorded(NamedTuple):
    """One captured run. ``arrays``: the memory of its values; ``found``: the symbols."""

    graph: Graph
    sites: list[Site]
    arrays: dict
    tensors: list[Tensor]
    result: Any
    found: Found | None


def record(
    fn: Callable, args: tuple, kwargs: dict, sizes: Sequence[tuple[int, int]],
    paths: Mapping[int, str], modules: Sequence[Module] = (),
) -> Recorded:  # fmt: skip
    """Run ``fn`` once; ``sizes``: the dimensions (tensor, dimension) that are symbols; ``paths``:
    of ``modules``, by their ids."""
    args, kwargs = tree.map(_copied, (args, kwargs))
    inputs = [x for x in tree.leaves((args, kwargs)) if isinstance(x, Tensor)]
    around = Reach((fn, args, kwargs))
    recorder = Recording(inputs, around, paths)
    fn = replaced = _Replaced(fn, modules)
    try:
        with fork_rng(), no_grad():
            try:
                with watched(), context.interpreter(recorder):
                    result = fn(*args, **kwargs)
            finally:
                recorder.undo()
            _check(recorder)
            replaced.check(recorder.captured)
            outs, rebuild = tree.flatten(result)
            arrays = dict(recorder.vars.values())
            found = None
            if sizes:
                found = _generalized(recorder, fn, args, kwargs, outs, sizes, around)
            graph = recorder.graph(outs)
        arrays = {recorder.names.get(v, v): a for v, a in arrays.items()}
        sites = list(recorder.sited.sites)
        return Recorded(graph, sites, arrays, list(graph.captured), rebuild(outs), found)
    finally:
        recorder.close()


class _Replaced:
    """Calls a function, and puts back what its modules had under the names that it gave others:
    a buffer takes the new numbers instead, as if they had been written to it."""

    def __init__(self, fn: Callable, modules: Sequence[Module]) -> None:
        self.fn = fn
        self.before = [
            (held, name, t) for m in modules for held in (m._buffers, m.__dict__)
            for name, t in held.items() if isinstance(t, Tensor)
        ]  # fmt: skip
        self.buffers = {id(m._buffers) for m in modules}
        self.known = [(m.__dict__, frozenset(m.__dict__)) for m in modules]
        self.lost: list[Tensor] = []  # what others replaced that is no buffer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            result = self.fn(*args, **kwargs)
        except BaseException:
            self._put_back()
            raise
        changed = self._put_back()
        old = {id(t) for t, _ in changed}
        result = tree.map(lambda x: x.clone() if id(x) in old else x, result)
        for t, new in changed:
            t.copy_(new)
        return result

    def _put_back(self) -> list[tuple[Tensor, Tensor]]:
        """Buffers, and what stood in their place."""
        changed = []
        for held, name, t in self.before:
            new = held.get(name)
            if new is t:
                continue
            held[name] = t
            if id(held) in self.buffers:
                if not isinstance(new, Tensor) or new.meta() != t.meta():
                    raise CaptureError(f"export: it puts another kind of value in the place of the "
                                       f"buffer {name!r}")  # fmt: skip
                changed.append((t, new))
            else:
                self.lost.append(t)
        for held, names in self.known:
            for name in [n for n in held if n not in names and isinstance(held[n], Tensor)]:
                del held[name]
        return changed

    def check(self, read: Sequence[Tensor]) -> None:
        """Refuse a program that reads what it replaces, and would always read the first."""
        if any(t is r for t in self.lost for r in read):
            raise CaptureError(
                "export: it reads a tensor of a module that is no buffer, and puts another in its "
                "place; make it a buffer (register_buffer)"
            )


def _copied(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    if not isinstance(x.array, np.ndarray):
        raise CaptureError(f"export: a tensor on {x.device} is given; examples on the host are "
                           "needed (.cpu())")  # fmt: skip
    return wrap(x.array.copy("K")).requires_grad_(x.requires_grad)


def _check(recorder: Recording) -> None:
    if recorder.refused is not None:
        raise CaptureError(f"export: {recorder.refused}")


def _generalized(
    recorder: Recording, fn: Callable, args: tuple, kwargs: dict, outs: list,
    sizes: Sequence[tuple[int, int]], around: Reach,
) -> Found:  # fmt: skip
    try:
        return generalize(recorder, fn, args, kwargs, outs, None, sizes, around.holders, Following)
    except Unlike as why:
        raise Fixed(f"export: its sizes cannot change: {why}") from None


__all__ = ["Fixed", "Recorded", "Recording", "Site", "record"]
