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

from collections.abc import Iterator
from typing import Any

import numpy as np

import disttrain as dt

from ... import tree
from ...arrays.from_python import array_of, type_for
from ...graphs import CURRENT, Symbol
from .errors import InaccessibleTensorError, OperatorNotAllowedInGraphError
from .types import DType, TensorShape, as_dtype

GRAPH = CURRENT  # the graph that is being traced


class Reference:
    """A tensor as a key: equal to another reference of the same tensor."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def deref(self) -> Any:
        return self._held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self._held is other._held

    def __hash__(self) -> int:
        return id(self._held)


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

    @property
    def ndim(self) -> int:
        return len(self._value.shape)

    def get_shape(self) -> TensorShape:
        return self.shape

    def ref(self) -> Reference:
        return Reference(self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple, kwargs: Any = None) -> Any:
        """What plain Tensors do with covers: as with what these cover."""
        return meaning_of(func, args, kwargs)

    def __hash__(self) -> int:
        raise TypeError("Tensor is unhashable. Instead, use tensor.ref() as the key.")

    def __reduce__(self) -> tuple:
        return convert, (self.numpy(),)  # type: ignore[attr-defined]


class EagerTensor(Tensor):
    """A tensor with numbers."""

    __slots__ = ("__weakref__", "_value")

    @property
    def device(self) -> str:
        return "/job:localhost/replica:0/task:0/device:CPU:0"

    def numpy(self) -> Any:
        value = self._value
        array = value if value.__class__ is np.ndarray else value.detach().numpy()
        return array[()] if not array.ndim else array.copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = np.asarray(self.numpy())
        return found if dtype is None else found.astype(dtype)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("Scalar tensor has no `len()`")
        return self._value.shape[0]

    def __iter__(self) -> Iterator:
        if not self.ndim:
            raise TypeError("Cannot iterate over a scalar tensor.")
        return (self[i] for i in range(len(self)))  # type: ignore[index]

    def __index__(self) -> int:
        return self.numpy().__index__()

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec) if spec else str(self)

    def __str__(self) -> str:
        return f"tf.Tensor({_printed(self)}, shape={self.shape}, dtype={self.dtype.name})"

    def __repr__(self) -> str:
        return f"<tf.Tensor: shape={self.shape}, dtype={self.dtype.name}, numpy={told(self)}>"

    def __copy__(self) -> EagerTensor:
        return self

    def __deepcopy__(self, memo: dict) -> EagerTensor:
        return wrap(dt.tensor(self.numpy()) if self.dtype.inner else self._value.copy())


for _kind in (bool, int, float, complex):
    setattr(EagerTensor, f"__{_kind.__name__}__", lambda self, kind=_kind: kind(self.numpy()))


def _printed(t: EagerTensor) -> str:
    return _apart(str(t.numpy()))


def _apart(text: str) -> str:
    """A text of several lines on lines of its own."""
    return "\n" + text if "\n" in text else text


def told(t: EagerTensor) -> str:
    """The numbers as ``repr`` shows them."""
    found = t.numpy()
    if isinstance(found, np.ndarray):
        return _apart(repr(found))
    return repr(found.item() if isinstance(found, np.generic) else found)


class SymbolicTensor(Tensor, Symbol):
    """A value of the function that ``graph`` is traced from."""

    __slots__ = ()

    @property
    def shape(self) -> TensorShape:
        return TensorShape(self.sizes())

    def set_shape(self, shape: Any) -> None:
        """Say what is known of the shape, which the program knows better."""
        self.shape.assert_is_compatible_with(shape)
        if TensorShape(shape).is_fully_defined() and self._twin is not None:
            self._twin = self._value

    @property
    def device(self) -> str:
        return ""

    def __repr__(self) -> str:
        return f"<tf.Tensor {self.name!r} shape={self.shape} dtype={self.dtype.name}>"

    def __str__(self) -> str:
        return f'Tensor("{self.name}", shape={self.shape}, dtype={self.dtype.name})'

    def __bool__(self) -> bool:
        raise OperatorNotAllowedInGraphError(_REFUSED.format("Using", "as a Python `bool` "))

    def __iter__(self) -> Iterator:
        raise OperatorNotAllowedInGraphError(_REFUSED.format("Iterating over", ""))

    def __len__(self) -> int:
        raise TypeError(f"len is not well defined for a symbolic Tensor ({self.name}). Please call "
                        "`x.shape` rather than `len(x)` for shape information.")  # fmt: skip

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise NotImplementedError(
            f"Cannot convert a symbolic tf.Tensor ({self.name}) to a numpy array. This error may "
            "indicate that you're trying to pass a Tensor to a NumPy call, which is not supported."
        )

    def _number(self) -> Any:
        raise TypeError(f"{self!r} is a symbolic tensor of a traced function; it has no number yet")

    __int__ = __float__ = __index__ = __complex__ = _number

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'SymbolicTensor' object has no attribute {name!r}")


_REFUSED = (
    "{} a symbolic `tf.Tensor` {}is not allowed. You can attempt the following resolutions to the "
    "problem: If you are running in Graph mode, use Eager execution mode or decorate this function "
    "with @tf.function. If you are using AutoGraph, you can try decorating this function with "
    "@tf.function. If that does not work, then you may be using an unsupported feature or your "
    "source code may not be visible to AutoGraph. See "
    "https://github.com/tensorflow/tensorflow/blob/master/tensorflow/python/autograph/g3doc/"
    "reference/limitations.md#access-to-source-code for more information."
)


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


def meaning_of(func: Any, args: tuple, kwargs: Any) -> Any:
    """``func`` of Tensors in place of their covers, covered."""
    given = tree.map(_plain, (args, kwargs or {}))
    return tree.map(
        lambda v: wrap(v) if isinstance(v, dt.Tensor) else v, func(*given[0], **given[1])
    )


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
        return wrap(_made(value, wanted or hint, strict=wanted is not None))
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
        return wrap(_made(value.as_list(), as_dtype("int32"), True))
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


def _made(value: Any, kind: DType | None, strict: bool) -> Any:
    array, natural = array_of(value)
    if array.dtype.kind == "O":
        if kind is not None and kind.name != "string":
            raise TypeError(f"Cannot convert {value!r} to EagerTensor of dtype {kind.word}")
        return array
    name = type_for(array, natural, None if kind is None else kind.name, strict)
    if name is None:
        raise TypeError(f"Cannot convert {value!r} to EagerTensor of dtype {kind and kind.word}")
    return dt.tensor(array.astype(as_dtype(name).as_numpy_dtype))
