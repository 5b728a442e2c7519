"""``tf.Variable``, and ``tf.IndexedSlices``: gradients of rows.

A variable's value is never written to: an assignment puts another tensor in its place, so that what
was read before, by a program or for a gradient, stays as it was read. Inside of tapes a read gives
a leaf of its own over the same memory, of which the tapes are told.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import disttrain as dt

from ...arrays import pieces, slots
from ...context import thread
from . import arrays
from .dispatch import execute
from .operators import attach
from .tensor import GRAPH, EagerTensor, Reference, SymbolicTensor, convert, meaning_of, told, wrap
from .types import TensorShape

_count = itertools.count()


class IndexedSlices:
    """Rows ``values`` at the places ``indices`` of a tensor that is zero elsewhere."""

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self.values, self.indices, self.dense_shape = values, indices, dense_shape

    dtype = property(lambda self: self.values.dtype)

    @property
    def shape(self) -> TensorShape:
        known = self.dense_shape is not None
        return TensorShape(convert(self.dense_shape).numpy().tolist() if known else None)

    def _as_tensor(self) -> Any:
        if self.dense_shape is None:
            raise ValueError(
                "Tensor conversion requested for IndexedSlices for the argument `dense_shape`: it "
                "is not known"
            )
        sizes = self.dense_shape
        return arrays.NAMES["scatter_nd"](arrays.NAMES["expand_dims"](self.indices, -1), self.values, sizes)

    def __neg__(self) -> IndexedSlices:
        return IndexedSlices(-self.values, self.indices, self.dense_shape)

    def __mul__(self, other: Any) -> IndexedSlices:
        return IndexedSlices(self.values * other, self.indices, self.dense_shape)

    def __str__(self) -> str:
        return (f"IndexedSlices(indices={self.indices}, values={self.values}"
                f", dense_shape={self.dense_shape})")  # fmt: skip


class Variable:
    """A tensor that can be assigned to; tapes watch it, where it is ``trainable``."""

    __array_priority__ = 2001
    _in_graph = False

    def __init__(
        self, initial_value: Any = None, trainable: bool | None = None,
        validate_shape: bool = True, caching_device: Any = None, name: str | None = None,
        variable_def: Any = None, dtype: Any = None, import_scope: Any = None,
        constraint: Any = None, synchronization: Any = None, aggregation: Any = None,
        shape: Any = None, experimental_enable_variable_lifting: bool = True,
    ) -> None:  # fmt: skip
        graph = GRAPH.get()
        token = GRAPH.set(None)
        try:
            start = initial_value() if callable(initial_value) else initial_value
            if start is None:
                raise ValueError("The `initial_value` arg to `tf.Variable` must be specified "
                                 "except "
                                 "when you are not providing a `variable_def`. You provided "
                                 "neither.")  # fmt: skip
            if isinstance(start, SymbolicTensor):
                start = wrap(start._value)
            t = convert(start, dtype)
        finally:
            GRAPH.reset(token)
        self._tensor = t._value.detach().clone() if t.dtype.inner else t._value.copy()
        self._shape = TensorShape(t.shape if shape is None else shape)
        if not self._shape.is_compatible_with(t.shape):
            raise ValueError(
                f"In this `tf.Variable` creation, the initial value's shape ({t.shape}) is not "
                f"compatible with the explicitly supplied `shape` argument ({self._shape})."
            )
        self.dtype, self.constraint = t.dtype, constraint
        self._trainable = True if trainable is None else bool(trainable)
        self.synchronization, self.aggregation = synchronization, aggregation
        self._name, self._number = name or "Variable", next(_count)
        if graph is not None:
            graph.created.append(self)

    trainable = property(lambda self: self._trainable)
    name = property(lambda self: f"{self._name}:0")
    shape = property(lambda self: self._shape)
    device = property(lambda self: "/job:localhost/replica:0/task:0/device:CPU:0")
    handle = property(lambda self: self)
    ndim = property(lambda self: len(self._tensor.shape))
    initialized_value = initial_value = property(lambda self: self.read_value())

    # --- reading --------------------------------------------------------------------------------
    def value(self) -> Any:
        """What it is now."""
        return self._as_tensor()

    def read_value(self) -> Any:
        return self._as_tensor()

    def _as_tensor(self) -> Any:
        graph = GRAPH.get()
        if graph is None:
            return wrap(self._read())
        graph.uses(self)
        return graph.record("ReadVariableOp", self._read, [])

    def _read(self) -> Any:
        if thread.tapes and (self.dtype.is_floating or self.dtype.is_complex):
            return leaf_of(self)
        return self._tensor

    def sparse_read(self, indices: Any, name: str | None = None) -> Any:
        """Its rows at ``indices``."""
        return arrays.gather(self, indices)

    def numpy(self) -> Any:
        if GRAPH.get() is not None:
            raise NotImplementedError("numpy() is only available when eager execution is enabled.")
        return wrap(self._tensor).numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    # --- assigning ------------------------------------------------------------------------------
    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Put ``value`` in its place."""
        t = convert(value, self.dtype)
        if not self._shape.is_compatible_with(t.shape):
            raise ValueError(
                f"Cannot assign value to variable ' {self.name}': Shape mismatch.The variable "
                "shape "
                f"{self._shape}, and the assigned value shape {t.shape} are incompatible."
            )
        self._update("AssignVariableOp", lambda v: v, [t])
        return _Unread(self) if read_value else None

    def _update(self, kind: str, new: Any, inputs: list) -> None:
        def call(*values: Any) -> None:
            found = new(*values)
            alike = isinstance(found, dt.Tensor)
            self._tensor = found.detach().clone() if alike else found.copy()

        graph = GRAPH.get()
        if graph is None:
            call(*[t._value for t in inputs])
        else:
            graph.uses(self)
            graph.record(kind, call, inputs, examples=())

    def assign_add(self, delta: Any, use_locking: bool = False, name: str | None = None,
                   read_value: bool = True) -> Any:  # fmt: skip
        """Add ``delta``."""
        return self._moved("AssignAddVariableOp", dt.add, delta)

    def assign_sub(self, delta: Any, use_locking: bool = False, name: str | None = None,
                   read_value: bool = True) -> Any:  # fmt: skip
        """Subtract ``delta``."""
        return self._moved("AssignSubVariableOp", dt.sub, delta)

    def _moved(self, kind: str, fn: Any, delta: Any) -> Any:
        t = convert(delta, self.dtype)
        if not self._shape.is_compatible_with(t.shape):
            raise ValueError(f"Cannot update variable with shape {self._shape} using a Tensor with "
                             f"shape {t.shape}, shapes must be equal.")  # fmt: skip
        self._update(kind, lambda d: fn(self._tensor, d), [t])
        return _Unread(self)

    def _rows(self, how: str, slices: Any) -> Any:
        indices = arrays.NAMES["expand_dims"](convert(slices.indices), -1)
        return self._scatter(how, indices, slices.values)

    def _scatter(self, how: str, indices: Any, updates: Any) -> Any:
        at, rows = convert(indices), convert(updates, self.dtype)
        self._update("ResourceScatterNd" + how.title(), lambda i, u: slots.put_nd(
            self._tensor, i, u.expand(*i.shape[:-1], *self._tensor.shape[i.shape[-1]:]), how,
        ), [at, rows])  # fmt: skip
        return _Unread(self)

    # --- looking at it --------------------------------------------------------------------------
    def get_shape(self) -> TensorShape:
        return self._shape

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple, kwargs: Any = None) -> Any:
        """What plain Tensors do with variables."""
        return meaning_of(func, args, kwargs)

    def ref(self) -> Reference:
        return Reference(self)

    def __len__(self) -> int:
        return len(self._as_tensor())

    def __bool__(self) -> bool:
        return bool(self._as_tensor())

    def __int__(self) -> int:
        return int(self._as_tensor())

    def __float__(self) -> float:
        return float(self._as_tensor())

    def __index__(self) -> int:
        return self._as_tensor().__index__()

    def __iter__(self) -> Any:
        return iter(self._as_tensor())

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec) if spec else str(self)

    def __repr__(self) -> str:
        shown = "" if GRAPH.get() is not None else f", numpy={told(wrap(self._tensor))}"
        return f"<tf.Variable {self.name!r} shape={self._shape} dtype={self.dtype.name}{shown}>"

    def __hash__(self) -> int:
        raise TypeError("Variable is unhashable. Instead, use variable.ref() as the key. "
                        "(Variable: "
                        f"{self!r})")  # fmt: skip

    def __deepcopy__(self, memo: dict) -> Variable:
        return Variable(self.numpy(), self._trainable, name=self._name)

    def __reduce__(self) -> tuple:
        return Variable, (self.numpy(), self._trainable, True, None, self._name)


class _Unread(Variable):
    """What an assignment gives: the variable, read when it is used."""

    def __init__(self, variable: Variable) -> None:
        self.__dict__ = variable.__dict__

    def __repr__(self) -> str:
        return super().__repr__().replace(repr(self.name), "'UnreadVariable'", 1)


for _how in ("update", "add", "sub", "min", "max"):
    _word = {"min": "amin", "max": "amax"}.get(_how, _how)
    setattr(Variable, f"scatter_{_how}", lambda self, sparse_delta, use_locking=False, name=None,
            _w=_word: self._rows(_w, sparse_delta))  # fmt: skip
    setattr(Variable, f"scatter_nd_{_how}", lambda self, indices, updates, name=None, _w=_word:
            self._scatter(_w, indices, updates))  # fmt: skip
_hash = Variable.__hash__
attach(Variable)
_CLASS: Any = Variable
_read_item = _CLASS.__getitem__


class _Sliced(EagerTensor):
    """A part of a variable, which can be assigned."""

    __slots__ = ("_key", "_variable")

    _key: Any
    _variable: Any

    def assign(self, value: Any, name: str | None = None) -> Any:
        """Put ``value`` there."""
        whole, key = self._variable._tensor.clone(), self._key
        whole[key] = convert(value, self._variable.dtype)._value.detach()
        return self._variable.assign(wrap(whole))


def _getitem(self: Variable, key: Any) -> Any:
    found = _read_item(self, key)
    if not isinstance(found, EagerTensor):
        return found
    part = _Sliced()
    part._value, part._variable, part._key = found._value, self, key
    return part


_CLASS.__getitem__ = _getitem
_CLASS.__hash__ = _hash


# --- what tapes know of variables -------------------------------------------------------------
def leaf_of(variable: Any) -> Any:
    """The tensor that stands for ``variable`` in the tapes that record and watch it now."""
    wanted = [tape for tape in thread.tapes if notes_of(tape).wants(variable)]
    if not wanted:
        return variable._tensor
    known = (notes_of(tape).leaf(variable) for tape in thread.tapes)
    leaf = next((leaf for leaf in known if leaf is not None), None)
    if leaf is None:
        leaf = variable._tensor.detach().requires_grad_()
    for tape in wanted:
        notes_of(tape).add(variable, leaf)
    return leaf


class Notes:
    """The variables that a tape has seen: for each the leaves that were read, and rows of it."""

    def __init__(self, automatic: bool) -> None:
        self.automatic = automatic
        self.chosen: list[Any] = []  # watched by name
        self.seen: dict[int, tuple[Any, list, list]] = {}

    def wants(self, variable: Any) -> bool:
        base = variable.__dict__
        chosen = any(v.__dict__ is base for v in self.chosen)
        return chosen or (self.automatic and variable.trainable)

    def leaf(self, variable: Any) -> Any:
        """The leaf over what ``variable`` is now."""
        row = self.seen.get(id(variable.__dict__))
        if row is None or not row[1]:
            return None
        leaf = row[1][-1]
        now = variable._tensor
        return leaf if leaf.data_ptr() == now.data_ptr() and leaf.shape == now.shape else None

    def add(self, variable: Any, leaf: Any) -> None:
        _, leaves, _ = self._row(variable)
        if not any(one is leaf for one in leaves):
            leaves.append(leaf)

    def add_rows(self, variable: Any, indices: Any, rows: Any) -> None:
        self._row(variable)[2].append((indices, rows))

    def _row(self, variable: Any) -> tuple:
        return self.seen.setdefault(id(variable.__dict__), (variable, [], []))

    def of(self, variable: Any) -> tuple[list, list]:
        row = self.seen.get(id(variable.__dict__))
        return ([], []) if row is None else (row[1], row[2])


def notes_of(tape: Any) -> Notes:
    """The notes of a native tape."""
    found = tape.__dict__.get("notes")
    if found is None:
        found = tape.notes = Notes(tape.automatic)
    return found


def gather_rows(params: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    """``tf.gather``: of a variable that tapes watch, its rows become leaves, so that its gradient
    is that of rows."""
    axis, batch = kwargs.get("axis"), kwargs.get("batch_dims", 0)
    sparse = isinstance(params, Variable) and not args and axis in (None, 0) and not batch
    if not (sparse and params.dtype.is_floating):
        return _gather(params, indices, *args, **kwargs)
    at = convert(indices)

    def call(places: Any) -> Any:
        wanted = [tape for tape in thread.tapes if notes_of(tape).wants(params)]
        pieces.within(places, params._tensor.shape[0])
        rows = params._tensor.detach().index_select(0, places.reshape(-1).long())
        rows = rows.requires_grad_() if wanted else rows
        for tape in wanted:
            notes_of(tape).add_rows(params, places, rows)
        return rows.reshape(*places.shape, *rows.shape[1:])

    graph = GRAPH.get()
    if graph is not None:
        graph.uses(params)
    return execute("ResourceGather", call, [at], kwargs.get("name"))


_gather = arrays.gather
arrays.NAMES["gather"] = gather_rows

__all__ = ["IndexedSlices", "Notes", "Variable", "notes_of"]
