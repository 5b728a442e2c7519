"""Cells that traced functions know of: where one is traced, reads and assignments are operations of
its graph, which has the cell among its variables; and containers of cells."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

from .. import tree
from ..arrays import pieces, slots
from ..autograd.cells import Cell, arrived, awaiting
from ..core.tensor import Tensor
from ..errors import CaptureError
from ..ops import api as ops
from ..partial_shape import PartialShape
from .compiled import STAGING
from .graph import CURRENT, TRIAL, Symbol, effect


def owned(value: Any) -> Any:
    """A copy that records nothing, of a Tensor or of an array of texts."""
    return value.detach().clone() if isinstance(value, Tensor) else value.copy()


_LOCKS = [threading.RLock() for _ in range(64)]  # of the cells, as their ids fall
_WAYS: dict[str, Callable] = {"assign": lambda old, new: new, "add": ops.add, "sub": ops.sub}


class GraphCell(Cell):
    """A cell that keeps copies of what it is given. ``shape``: which it may have (None: that of
    ``value``); ``owner``: what stands for it in a program."""

    kinds: ClassVar[dict[str, str]] = {
        "read": "Read", "assign": "Assign", "add": "AssignAdd", "sub": "AssignSub",
        "scatter": "Scatter",
    }  # fmt: skip

    def __init__(
        self, value: Any, trainable: bool = True, shape: Any = None, owner: Any = None
    ) -> None:
        super().__init__(owned(value), trainable)
        self.shape = PartialShape(tuple(value.shape) if shape is None else shape)
        self.owner = self if owner is None else owner
        self._new = bool(awaiting())

    def held(self) -> Any:
        """The value as it is, after those have had their chance who wait for new cells."""
        if self._new:
            self._new = False
            arrived()
        return self.value

    def _noted(self) -> Any:
        if STAGING.get():
            raise CaptureError("a cell is read, which may be another tensor at the next call")
        graph = CURRENT.get()
        if graph is not None:
            graph.uses(self.owner)
        if self._new:
            self.held()
        return graph

    def now(self) -> Any:
        """The value, or what stands for it."""
        graph = self._noted()
        return (
            self.read()
            if graph is None
            else graph.record(self.kinds["read"], self.read, [], role="read")
        )

    def picked(self, indices: Tensor) -> Tensor:
        """``value[indices]``, whose gradient is that of rows: what an operation may call."""
        self._noted()
        pieces.within(indices, self.value.shape[0])
        return self.rows(indices)

    def update(self, kind: str, new: Callable[..., Any], *inputs: Any) -> None:
        """Put ``new(*values of inputs)`` in its place."""

        def call(*values: Any) -> None:
            if TRIAL.get():
                return
            with _LOCKS[id(self) // 64 % len(_LOCKS)]:  # what is added is added to what is there
                self.value = owned(new(*values))

        self._noted()
        effect(self.kinds.get(kind, kind), call, list(inputs))

    def move(self, way: str, value: Any) -> None:
        """Put ``value`` in its place ("assign"), "add" it, or subtract it ("sub")."""
        fn = _WAYS[way]
        self.update(way, lambda v: fn(self.value, v), value)

    def scatter(self, how: str, indices: Any, updates: Any) -> None:
        """Put ``updates`` at rows of indices, or join them to what is there (``slots.put_nd``)."""

        def new(at: Tensor, rows: Tensor) -> Tensor:
            now = self.value
            whole = rows.expand(*at.shape[:-1], *now.shape[at.shape[-1] :])
            return slots.put_nd(now, at, whole, how)

        self.update(self.kinds["scatter"] + how.title(), new, indices, updates)

    def put_item(self, key: Any, value: Any) -> None:
        """Put ``value`` at a subscript."""
        keys = key if isinstance(key, tuple) else (key,)
        ends = [(k.start, k.stop, k.step) if isinstance(k, slice) else (k,) for k in keys]
        flat = [end for row in ends for end in row]
        at = [i for i, end in enumerate(flat) if isinstance(end, Symbol)]

        def new(part: Any, *numbers: Any) -> Any:
            known = dict(enumerate(flat)) | dict(zip(at, numbers, strict=True))
            rows = iter(known.values())
            found = [[next(rows) for _ in row] for row in ends]
            whole = self.value.clone()
            whole[tuple(slice(*row) if len(row) > 1 else row[0] for row in found)] = part
            return whole

        self.update("StridedSliceAssign", new, value, *[flat[i] for i in at])


class Container:
    """What finds the cells and the containers that are among its attributes, in lists and dicts,
    too. A subclass says what else is a variable, and what else has parts."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if awaiting():
            arrived()

    def _is_variable(self, value: Any) -> bool:
        """Whether a part is one."""
        return isinstance(value, Cell)

    def _parts_of(self, value: Any) -> list:
        """What is among the attributes or elements of ``value``."""
        if isinstance(value, (Container, dict)):
            known = vars(value) if isinstance(value, Container) else value
            return [known[k] for k in sorted(known, key=str)]
        return list(value) if isinstance(value, (list, tuple)) else []

    def _found(self, wanted: Callable[[Any], bool]) -> tuple:
        return tuple(filter(wanted, tree.below(self, self._parts_of)))

    @property
    def variables(self) -> tuple:
        """All variables."""
        return self._found(self._is_variable)

    @property
    def trainable_variables(self) -> tuple:
        """Those that tapes watch."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def non_trainable_variables(self) -> tuple:
        """The others."""
        return tuple(v for v in self.variables if not v.trainable)

    @property
    def submodules(self) -> tuple:
        """All containers below it."""
        return self._found(lambda v: isinstance(v, Container))
