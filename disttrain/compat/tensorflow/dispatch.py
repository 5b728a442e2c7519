"""TensorFlow's operations: ``disttrain.graphs.operations`` over its tensors, with failures in its
words."""

from __future__ import annotations

from typing import Any

from ...core.types import dtypes
from ...graphs.operations import Operations
from ...graphs.operators import Operators
from ...graphs.tapes import RECORDED, recorded, settled
from .errors import FAILURES, OpError, failed
from .tensor import GRAPH, SymbolicTensor, convert, is_tensor, out_of_scope, wrap
from .types import as_dtype

IN_KERAS, in_keras = RECORDED, recorded  # whether code of Keras runs
FLOATS = frozenset("bfloat16 float16 float32 float64".split())
COMPLEX = FLOATS | {"complex64", "complex128"}
_ORDER = {"bfloat16": "bfloat16", "float16": "half", "float32": "float", "float64": "double",
          "complex64": "complex64", "complex128": "complex128"}  # fmt: skip


class _Operations(Operations):
    failures = (*FAILURES, OpError)
    is_tensor = staticmethod(is_tensor)
    tensor: Any = staticmethod(convert)

    def plain(self, t: Any) -> Any:
        if t.__class__ is SymbolicTensor:
            raise out_of_scope(t)
        return t._value

    cover = staticmethod(wrap)
    recording = staticmethod(in_keras)

    def shown(self, value: Any) -> Any:
        return wrap(settled(value))

    def type_name(self, t: Any) -> str:
        name: str = t.dtype.name
        return name

    def element_type(self, kind: Any) -> Any:
        found = as_dtype(kind).inner
        return dtypes.float32 if found is None else found

    def failed(self, kind: str, inputs: list, error: BaseException) -> BaseException:
        own = isinstance(error, OpError)
        if GRAPH.get() is not None:
            return ValueError(str(error) if own else self._told(kind, inputs, error))
        return error if own else failed(kind, self._told(kind, inputs, error))

    def _told(self, kind: str, inputs: list, error: BaseException) -> str:
        shapes = ["[" + ",".join(map(str, t.shape)) + "]" for t in inputs]
        if kind in self.pairs and len(shapes) == 2:
            return f"Incompatible shapes: {shapes[0]} vs. {shapes[1]}"
        if kind in ("MatMul", "BatchMatMulV2") and len(shapes) == 2:
            if min(t.ndim for t in inputs) < 2:
                return "In[0] ndims must be >= 2"
            return f"Matrix size-incompatible: In[0]: {shapes[0]}, In[1]: {shapes[1]}"
        return str(error)

    def misfit(self, kind: str, place: int, t: Any, wanted: Any) -> BaseException:
        if GRAPH.get() is not None:
            return TypeError(f"Input 'y' of {kind!r} Op has type {t.dtype.name} that does not "
                             f"match type {wanted.name} of argument 'x'.")  # fmt: skip
        return failed(kind, f"cannot compute {kind} as input #{place}(zero-based) was expected to "
                      f"be a {wanted.word} tensor but is a {t.dtype.word} tensor")  # fmt: skip

    def missing(self, kind: str, t: Any, types: frozenset) -> BaseException:
        words = ", ".join(word for n, word in _ORDER.items() if n in types)
        return failed(kind, f"Value for attr 'T' of {t.dtype.word} is not in the list of allowed "
                      f"values: {words}")  # fmt: skip


class _Operators(Operators):
    def is_odd(self, one: Any, other: Any) -> bool:
        text = isinstance(other, (str, bytes)) and convert(one).dtype.name != "string"
        return text or super().is_odd(one, other)  # (text beside numbers)

    def beside(self, one: Any, other: Any, word: str = "") -> Any:
        if is_tensor(other):
            return other
        kind = convert(one).dtype
        return convert(other, hint=kind) if word in ("add", "matmul") else convert(other, kind)

    def no_subscript(self, k: Any) -> str:
        return ("Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar "
                f"tf.int32/tf.int64 tensors are valid indices, got {k!r}")  # fmt: skip


OPS = _Operations()
OPS.pure |= set("Cast RealDiv DivNoNan Einsum Range Meshgrid StridedSlice AddN".split())
OPERATORS = _Operators(OPS)
TEXT = OPS.apart  # what computes with arrays of bytes
execute, op, table, unary, binary = OPS.execute, OPS.op, OPS.table, OPS.unary, OPS.binary
allow, matched, plain = OPS.allow, OPS.alike, OPS.numbers
