"""TensorFlow's tensors: immutable covers of disttrain's, with TensorFlow's conventions.

The value of a tensor is a disttrain Tensor (of strings: a numpy array of bytes). It is a cover and
no subclass, as the tensors of Keras' layers on disttrain are plain Tensors with PyTorch's
conventions (``.shape``, ``.dtype``, ``.view``), which the code of Keras relies on: a program may
give either to every function here, and what functions return is a cover. ``keras`` has the border
on Keras' side. The gradient's engine, the compiler and the transforms see plain Tensors.

An ``EagerTensor`` has numbers. A ``SymbolicTensor`` stands for a value of a traced function: its
value is an example of it, by which shapes and types are known, and which no program can read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import disttrain as dt

from ...arrays.covers import Cover, Reference, lined, told, uncovered
from ...arrays.from_python import made
from ...graphs import CURRENT, Symbol
from .errors import InaccessibleTensorError, OperatorNotAllowedInGraphError
from .types import DType, TensorShape, as_dtype

GRAPH = CURRENT  # the graph that is being traced


class Tensor:
    """What both kinds have; operators are attached by ``operators``."""

    __slots__ = ()
    __array_priority__ = 2000  # above that of disttrain's tensors, and numpy's

    _value: Any

    @property
    def dtype(self) -> DType:
        value = self._value
        return as_dtype(value.dtype if value.__class__ is np.ndarray else value.meta()[1])

    @property
    def shape(self) -> TensorShape:
        return TensorShape(tuple(self._value.shape))

    ndim = property(lambda self: len(self._value.shape))
    ref = lambda self: Reference(self)  # noqa: E731, PLW0108
    get_shape = lambda self: self.shape  # noqa: E731

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple, kwargs: Any = None) -> Any:
        """What plain Tensors do with covers: as with what these cover."""
        return uncovered(func, args, kwargs, _plain, wrap)

    def __hash__(self) -> int:
        raise TypeError("Tensor is unhashable. Instead, use tensor.ref() as the key.")

    def __reduce__(self) -> tuple:
        return convert, (self.numpy(),)  # type: ignore[attr-defined]


class EagerTensor(Tensor, Cover):
    """A tensor with numbers."""

    __slots__ = ("__weakref__", "_value")
    device = property(lambda self: "/job:localhost/replica:0/task:0/device:CPU:0")

    def __str__(self) -> str:
        numbers = lined(str(self.numpy()))
        return f"tf.Tensor({numbers}, shape={self.shape}, dtype={self.dtype.name})"

    def __repr__(self) -> str:
        numbers = told(self.numpy())
        return f"<tf.Tensor: shape={self.shape}, dtype={self.dtype.name}, numpy={numbers}>"


class SymbolicTensor(Tensor, Symbol):
    """A value of the function that ``graph`` is traced from."""

    __slots__ = ()
    shape = property(lambda self: TensorShape(self.sizes()))  # type: ignore[assignment]
    device = property(lambda self: "")

    def set_shape(self, shape: Any) -> None:
        """Say what is known of the shape, which the program knows better."""
        self.shape.assert_is_compatible_with(shape)
        if TensorShape(shape).is_fully_defined() and self._twin is not None:
            self._twin = self._value

    def __repr__(self) -> str:
        return f"<tf.Tensor {self.name!r} shape={self.shape} dtype={self.dtype.name}>"

    def __str__(self) -> str:
        return f'Tensor("{self.name}", shape={self.shape}, dtype={self.dtype.name})'

    def refused(self, question: str) -> BaseException:
        kind, text = _REFUSED.get(question, (TypeError, _NO_NUMBER))
        return kind(text.format(self))

    def __getattr__(self, name: str) -> Any:
        if name == "assign" and hasattr(self.op, name):  # a part of a variable
            return self.op.assign
        raise AttributeError(f"'SymbolicTensor' object has no attribute {name!r}")


_NO_NUMBER = "{!r} is a symbolic tensor of a traced function; it has no number yet"
_NOT_ALLOWED = (
    "{} a symbolic `tf.Tensor` {}is not allowed. You can attempt the following resolutions to the "
    "problem: If you are running in Graph mode, use Eager execution mode or decorate this function "
    "with @tf.function. If you are using AutoGraph, you can try decorating this function with "
    "@tf.function. If that does not work, then you may be using an unsupported feature or your "
    "source code may not be visible to AutoGraph. See "
    "https://github.com/tensorflow/tensorflow/blob/master/tensorflow/python/autograph/g3doc/"
    "reference/limitations.md#access-to-source-code for more information."
)
_REFUSED: dict[str, tuple[type[Exception], str]] = {
    "bool": (OperatorNotAllowedInGraphError, _NOT_ALLOWED.format("Using", "as a Python `bool` ")),
    "iter": (OperatorNotAllowedInGraphError, _NOT_ALLOWED.format("Iterating over", "")),
    "len": (TypeError, "len is not well defined for a symbolic Tensor ({0.name}). Please call "
            "`x.shape` rather than `len(x)` for shape information."),
    "array": (NotImplementedError, "Cannot convert a symbolic tf.Tensor ({0.name}) to a numpy "
              "array. This error may indicate that you're trying to pass a Tensor to a NumPy call, "
              "which is not supported."),
}  # fmt: skip


def out_of_scope(t: SymbolicTensor) -> InaccessibleTensorError:
    """What somebody is told who uses ``t`` after its function was traced."""
    return InaccessibleTensorError(
        f"{t!r} is out of scope and cannot be used here. Use return values, explicit Python locals "
        "or TensorFlow collections to access it.\nPlease see https://www.tensorflow.org/guide/"
        "function#all_outputs_of_a_tffunction_must_be_return_values for more information."
    )


def wrap(value: Any) -> EagerTensor:
    """The tensor over a disttrain Tensor, or over an array of bytes."""
    out = EagerTensor()
    out._value = value
    return out


def _plain(value: Any) -> Any:
    known = isinstance(value, Tensor) or hasattr(value, "_as_tensor")
    return convert(value)._value if known else value


# --- conversion ----------------------------------------------------------------------------------
def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a tensor or a variable, of TensorFlow's, disttrain's or Keras' kind."""
    return (
        isinstance(value, (Tensor, dt.Tensor)) or hasattr(value, "_as_tensor") or _of_keras(value)
    )


def _of_keras(value: Any) -> bool:
    kind = type(value)
    return kind.__module__.startswith("keras.") and kind.__name__ == "Variable"


def convert(value: Any, dtype: Any = None, hint: DType | None = None) -> Any:
    """The tensor of ``value``. ``dtype``: of this type, or an error; ``hint``: of this type, where
    ``value`` is no tensor and can be."""
    wanted = None if dtype is None else as_dtype(dtype)
    found = _tensor_of(value)
    if found is None:
        kind: Any = wanted or hint
        inner = made(value, kind and kind.name, wanted is not None)
        if inner is None:
            word = kind and kind.word
            raise TypeError(f"Cannot convert {value!r} to EagerTensor of dtype {word}")
        return wrap(inner)
    if wanted is not None and found.dtype is not wanted:
        raise ValueError(
            f"Tensor conversion requested dtype {wanted.name} for Tensor with dtype "
            f"{found.dtype.name}: {found!r}"
        )
    return found


def _tensor_of(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, dt.Tensor):
        return wrap(value)
    if hasattr(value, "_as_tensor"):  # variables, slices
        return value._as_tensor()
    if _of_keras(value):
        return wrap(value.value)
    if isinstance(value, (list, tuple)) and any(map(_holds_tensor, value)):
        return _stacked(value)
    if isinstance(value, TensorShape):
        return convert(value.as_list(), "int32")
    return None


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_tensor, value))
    return is_tensor(value)


STACK: list[Any] = []  # the function ``tf.stack``, which is made above


def _stacked(values: Any) -> Any:
    first = next(v for v in values if _holds_tensor(v))
    kind = convert(first).dtype
    return STACK[0]([convert(v, hint=kind) for v in values])
