"""``tf.Variable``, and ``tf.IndexedSlices``: gradients of rows. What a variable holds is a cell
(``disttrain.graphs.cells``): an assignment puts another tensor in its place."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...arrays.covers import Cover, Reference, told
from ...graphs import Composite, outside
from ...graphs.cells import GraphCell
from . import arrays
from .dispatch import execute
from .operators import attach
from .tensor import GRAPH, EagerTensor, SymbolicTensor, Tensor, convert, wrap
from .types import TensorShape

_expand, _scatter = arrays.NAMES["expand_dims"], arrays.NAMES["scatter_nd"]


class IndexedSlices(Composite):
    """Rows ``values`` at the places ``indices`` of a tensor that is zero elsewhere."""

    fields = ("values", "indices", "dense_shape")

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
        return _scatter(_expand(self.indices, -1), self.values, self.dense_shape)

    __neg__ = lambda self: self * -1  # noqa: E731

    def __mul__(self, other: Any) -> IndexedSlices:
        return IndexedSlices(self.values * other, self.indices, self.dense_shape)

    def __str__(self) -> str:
        return (f"IndexedSlices(indices={self.indices}, values={self.values}"
                f", dense_shape={self.dense_shape})")  # fmt: skip


class _Held(GraphCell):
    kinds = {"read": "ReadVariableOp", "assign": "AssignVariableOp", "add": "AssignAddVariableOp",
             "sub": "AssignSubVariableOp", "scatter": "ResourceScatterNd"}  # fmt: skip


_MISFIT = {
    "assign": "Cannot assign value to variable ' {0.name}': Shape mismatch.The variable shape "
    "{0.shape}, and the assigned value shape {1} are incompatible.",
    "": "Cannot update variable with shape {0.shape} using a Tensor with shape {1}, shapes must be "
    "equal.",
}


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
        self._cell = _Held(t._value, trainable is None or bool(trainable), shape, self)
        if not self._fits(t):
            raise ValueError(
                f"In this `tf.Variable` creation, the initial value's shape ({t.shape}) is not "
                f"compatible with the explicitly supplied `shape` argument ({self.shape})."
            )
        self.dtype, self.constraint = t.dtype, constraint
        self.synchronization, self.aggregation = synchronization, aggregation
        self._name = name or "Variable"
        if graph is not None:
            graph.created.append(self)

    trainable = property(lambda self: self._cell.trainable)
    name = property(lambda self: f"{self._name}:0")
    shape = property(lambda self: TensorShape(self._cell.shape))
    device = EagerTensor.device
    handle = property(lambda self: self)
    ndim = property(lambda self: len(self._tensor.shape))
    initialized_value = initial_value = property(lambda self: self.read_value())
    _tensor = property(lambda self: self._cell.held(),
                       lambda self, value: setattr(self._cell, "value", value))  # fmt: skip

    # --- reading --------------------------------------------------------------------------------
    def value(self) -> Any:
        """What it is now."""
        found = self._cell.now()
        return found if found.__class__ is SymbolicTensor else wrap(found)

    read_value = _as_tensor = value

    def numpy(self) -> Any:
        if GRAPH.get() is not None:
            raise NotImplementedError("numpy() is only available when eager execution is enabled.")
        return wrap(self._tensor).numpy()

    # --- assigning ------------------------------------------------------------------------------
    def _fits(self, t: Any) -> bool:
        return self._cell.shape.is_compatible_with(t.shape)

    def _assigning(way: str) -> Any:  # type: ignore[misc]  # noqa: N805
        def assign(self: Variable, value: Any, use_locking: bool = False, name: str | None = None,
                   read_value: bool = True) -> Any:  # fmt: skip
            t = convert(value, self.dtype)
            if not self._fits(t):
                raise ValueError(_MISFIT.get(way, _MISFIT[""]).format(self, t.shape))
            self._cell.move(way, t)
            return _Unread(self) if read_value else None

        return assign

    assign, assign_add, assign_sub = map(_assigning, ("assign", "add", "sub"))

    def _scattered(self, how: str, indices: Any, updates: Any) -> Any:
        self._cell.scatter(how, convert(indices), convert(updates, self.dtype))
        return _Unread(self)

    # --- looking at it --------------------------------------------------------------------------
    sparse_read = lambda self, indices, name=None: gather_rows(self, indices)  # noqa: E731
    ref = lambda self: Reference(self)  # noqa: E731, PLW0108
    get_shape = lambda self: self.shape  # noqa: E731
    __torch_function__ = Tensor.__torch_function__
    __array__, __format__ = Cover.__array__, Cover.__format__  # type: ignore[assignment]

    def __hash__(self) -> int:
        raise TypeError("Variable is unhashable. Instead, use variable.ref() as the key. "
                        f"(Variable: {self!r})")  # fmt: skip

    def __repr__(self) -> str:
        traced = GRAPH.get() is not None
        shown = "" if traced else f", numpy={told(wrap(self._tensor).numpy())}"
        return f"<tf.Variable {self.name!r} shape={self.shape} dtype={self.dtype.name}{shown}>"

    def __reduce__(self) -> tuple:
        return Variable, (self.numpy(), self.trainable, True, None, self._name)


class _Unread(Variable):
    """What an assignment gives: the variable, read when it is used."""

    def __init__(self, variable: Variable) -> None:
        self.__dict__ = variable.__dict__

    def __repr__(self) -> str:
        return super().__repr__().replace(repr(self.name), "'UnreadVariable'", 1)


def _assign_part(variable: Any, key: Any, value: Any, name: str | None = None) -> Any:
    variable._cell.put_item(key, convert(value, variable.dtype))
    return _Unread(variable)


class _Sliced(EagerTensor):
    """A part of a variable, which can be assigned."""

    __slots__ = ("assign",)


def _complete(kind: Any) -> None:
    """Give variables the operators, Python's questions of tensors, and scatters."""
    attach(kind)
    read = kind.__getitem__

    def getitem(self: Any, key: Any) -> Any:
        found = read(self, key)
        part = _Sliced.over(found._value) if isinstance(found, EagerTensor) else found
        (part if part is not found else found.op).assign = partial(_assign_part, self, key)
        return part

    kind.__getitem__ = getitem
    for word in ("len", "bool", "int", "float", "index", "iter"):
        name = f"__{word}__"
        setattr(kind, name, lambda self, name=name: getattr(self._as_tensor(), name)())
    for word, how in arrays.SCATTERS.items():
        setattr(kind, f"scatter_{word}", lambda self, sparse_delta, use_locking=False, name=None,
                how=how: self._scattered(how, _expand(sparse_delta.indices, -1),
                                         sparse_delta.values))  # fmt: skip
        setattr(kind, f"scatter_nd_{word}", lambda self, indices, updates, name=None, how=how:
                self._scattered(how, indices, updates))  # fmt: skip


_complete(Variable)


def gather_rows(params: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    """``tf.gather``: of a variable that tapes watch, its rows become leaves, so that its gradient
    is that of rows."""
    axis, batch = kwargs.get("axis"), kwargs.get("batch_dims", 0)
    sparse = isinstance(params, Variable) and not args and axis in (None, 0) and not batch
    if not (sparse and params.dtype.is_floating):
        return _gather(params, indices, *args, **kwargs)
    return execute("ResourceGather", params._cell.picked, [convert(indices)], kwargs.get("name"))


_gather = arrays.gather
arrays.NAMES["gather"] = gather_rows
