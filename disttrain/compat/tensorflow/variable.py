"""``tf.Variable``, and ``tf.IndexedSlices``: gradients of rows. What a variable holds is a cell
(``disttrain.autograd.cells``): an assignment puts another tensor in its place."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import disttrain as dt

from ...arrays import pieces, slots
from ...arrays.covers import Reference, told
from ...autograd.cells import Cell
from ...graphs import effect, outside
from . import arrays
from .dispatch import execute
from .operators import attach
from .tensor import GRAPH, EagerTensor, SymbolicTensor, Tensor, convert, wrap
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
            raise ValueError("Tensor conversion requested for IndexedSlices for the argument "
                             "`dense_shape`: it is not known")  # fmt: skip
        at = arrays.NAMES["expand_dims"](self.indices, -1)
        return arrays.NAMES["scatter_nd"](at, self.values, self.dense_shape)

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

    def __init__(
        self, initial_value: Any = None, trainable: bool | None = None,
        validate_shape: bool = True, caching_device: Any = None, name: str | None = None,
        variable_def: Any = None, dtype: Any = None, import_scope: Any = None,
        constraint: Any = None, synchronization: Any = None, aggregation: Any = None,
        shape: Any = None, experimental_enable_variable_lifting: bool = True,
    ) -> None:  # fmt: skip
        graph = GRAPH.get()
        with outside():
            start = initial_value() if callable(initial_value) else initial_value
            if start is None:
                raise ValueError(
                    "The `initial_value` arg to `tf.Variable` must be specified except when you "
                    "are not providing a `variable_def`. You provided neither."
                )
            t = convert(wrap(start._value) if isinstance(start, SymbolicTensor) else start, dtype)
        self._cell = _Held(_own(t._value), trainable is None or bool(trainable))
        self._cell.owner = self
        self._shape = TensorShape(t.shape if shape is None else shape)
        if not self._shape.is_compatible_with(t.shape):
            raise ValueError(
                f"In this `tf.Variable` creation, the initial value's shape ({t.shape}) is not "
                f"compatible with the explicitly supplied `shape` argument ({self._shape})."
            )
        self.dtype, self.constraint = t.dtype, constraint
        self.synchronization, self.aggregation = synchronization, aggregation
        self._name, self._number = name or "Variable", next(_count)
        if graph is not None:
            graph.created.append(self)

    trainable = property(lambda self: self._cell.trainable)
    name = property(lambda self: f"{self._name}:0")
    shape = property(lambda self: self._shape)
    device = EagerTensor.device
    handle = property(lambda self: self)
    ndim = property(lambda self: len(self._tensor.shape))
    initialized_value = initial_value = property(lambda self: self.read_value())

    @property
    def _tensor(self) -> Any:
        return self._cell.value

    @_tensor.setter
    def _tensor(self, value: Any) -> None:
        self._cell.value = value

    # --- reading --------------------------------------------------------------------------------
    def value(self) -> Any:
        """What it is now."""
        return self._as_tensor()

    read_value = value

    def _as_tensor(self) -> Any:
        graph = GRAPH.get()
        if graph is None:
            return wrap(self._cell.read())
        graph.uses(self)
        return graph.record("ReadVariableOp", self._cell.read, [])

    def sparse_read(self, indices: Any, name: str | None = None) -> Any:
        """Its rows at ``indices``."""
        return gather_rows(self, indices)

    def numpy(self) -> Any:
        if GRAPH.get() is not None:
            raise NotImplementedError("numpy() is only available when eager execution is enabled.")
        return wrap(self._tensor).numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    # --- assigning ------------------------------------------------------------------------------
    def assign(self, value: Any, use_locking: bool = False, name: str | None = None,
               read_value: bool = True) -> Any:  # fmt: skip
        """Put ``value`` in its place."""
        t = convert(value, self.dtype)
        if not self._shape.is_compatible_with(t.shape):
            raise ValueError(
                f"Cannot assign value to variable ' {self.name}': Shape mismatch.The variable "
                f"shape {self._shape}, and the assigned value shape {t.shape} are incompatible."
            )
        found = self._update("AssignVariableOp", lambda v: v, [t])
        return found if read_value else None

    def _update(self, kind: str, new: Any, inputs: list) -> Any:
        def call(*values: Any) -> None:
            self._tensor = _own(new(*values))

        if GRAPH.get() is not None:
            GRAPH.get().uses(self)
        effect(kind, call, inputs)
        return _Unread(self)

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
        return self._update(kind, lambda d: fn(self._tensor, d), [t])

    def _scatter(self, how: str, indices: Any, updates: Any) -> Any:
        at, rows = convert(indices), convert(updates, self.dtype)

        def new(i: Any, u: Any) -> Any:
            now = self._tensor
            whole = u.expand(*i.shape[:-1], *now.shape[i.shape[-1] :])
            return slots.put_nd(now, i, whole, how)

        return self._update(f"ResourceScatterNd{how.title()}", new, [at, rows])

    # --- looking at it --------------------------------------------------------------------------
    ref = lambda self: Reference(self)  # noqa: E731, PLW0108
    get_shape = lambda self: self._shape  # noqa: E731
    __torch_function__ = Tensor.__torch_function__

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec) if spec else str(self)

    def __repr__(self) -> str:
        shown = "" if GRAPH.get() is not None else f", numpy={told(wrap(self._tensor).numpy())}"
        return f"<tf.Variable {self.name!r} shape={self._shape} dtype={self.dtype.name}{shown}>"

    def __deepcopy__(self, memo: dict) -> Variable:
        return Variable(self.numpy(), self.trainable, name=self._name)

    def __reduce__(self) -> tuple:
        return Variable, (self.numpy(), self.trainable, True, None, self._name)


class _Held(Cell):
    owner: Variable


def _own(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, dt.Tensor) else value.copy()


class _Unread(Variable):
    """What an assignment gives: the variable, read when it is used."""

    def __init__(self, variable: Variable) -> None:
        self.__dict__ = variable.__dict__

    def __repr__(self) -> str:
        return super().__repr__().replace(repr(self.name), "'UnreadVariable'", 1)


class _Sliced(EagerTensor):
    """A part of a variable, which can be assigned."""

    __slots__ = ("_key", "_variable")

    _key: Any
    _variable: Any

    def assign(self, value: Any, name: str | None = None) -> Any:
        """Put ``value`` there."""
        whole = self._variable._tensor.clone()
        whole[self._key] = convert(value, self._variable.dtype)._value.detach()
        return self._variable.assign(wrap(whole))


def _getitem(self: Any, key: Any) -> Any:
    found = _read_item(self, key)
    if not isinstance(found, EagerTensor):
        return found
    part = _Sliced()
    part._value, part._variable, part._key = found._value, self, key
    return part


def _hash(self: Variable) -> int:
    raise TypeError("Variable is unhashable. Instead, use variable.ref() as the key. (Variable: "
                    f"{self!r})")  # fmt: skip


def _complete(kind: Any) -> Any:
    """Give variables the operators, Python's questions of tensors, and scatters."""
    attach(kind)
    for word in ("len", "bool", "int", "float", "index", "iter"):
        name = f"__{word}__"
        setattr(kind, name, lambda self, name=name: getattr(self._as_tensor(), name)())
    for word, how in arrays.SCATTERS.items():
        setattr(kind, f"scatter_{word}", lambda self, sparse_delta, use_locking=False, name=None,
                how=how: self._scatter(how, arrays.NAMES["expand_dims"](
                    sparse_delta.indices, -1), sparse_delta.values))  # fmt: skip
        setattr(kind, f"scatter_nd_{word}", lambda self, indices, updates, name=None, how=how:
                self._scatter(how, indices, updates))  # fmt: skip
    read, kind.__getitem__, kind.__hash__ = kind.__getitem__, _getitem, _hash
    return read


_read_item = _complete(Variable)


def gather_rows(params: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    """``tf.gather``: of a variable that tapes watch, its rows become leaves, so that its gradient
    is that of rows."""
    axis, batch = kwargs.get("axis"), kwargs.get("batch_dims", 0)
    sparse = isinstance(params, Variable) and not args and axis in (None, 0) and not batch
    if not (sparse and params.dtype.is_floating):
        return _gather(params, indices, *args, **kwargs)

    def call(places: Any) -> Any:
        pieces.within(places, params._tensor.shape[0])
        return params._cell.rows(places)

    graph = GRAPH.get()
    if graph is not None:
        graph.uses(params)
    return execute("ResourceGather", call, [convert(indices)], kwargs.get("name"))


_gather = arrays.gather
arrays.NAMES["gather"] = gather_rows
