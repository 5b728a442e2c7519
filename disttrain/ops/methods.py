"""The one place where Tensor gets its operators and methods."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import core
from ..core import sharing
from ..core.annotations import Format, Operand
from ..core.classes import values_of
from ..core.gate import Tracer
from ..core.tensor import Tensor, note_read, wrap
from ..core.types import dtypes
from ..core.writes import check_captured
from ..errors import AutogradError, ShapeError
from . import api
from .functions import comparing, storage
from .functions import elementwise as math
from .functions import linalg as products
from .functions import subscript as indexing
from .functions.creation import create, moving
from .functions.creation import data as from_data
from .functions.creation.moving import to
from .functions.sparse import creation as sparse
from .functions.sparse.coo import SparseTensor
from .functions.sparse.structured import Structured
from .functions.views import aliases, memory_formats
from .functions.views import shapes as shape
from .inplace_methods import attach, install
from .primitives import elementwise as el
from .printing import text

_CLASS: Any = Tensor  # (its stub says what methods it has; here it gets them)


def _reflected(fn: Callable) -> Callable:
    def run(self: Tensor, other: Operand) -> Tensor:
        if not isinstance(other, (int, float, complex, np.generic, np.ndarray, bool)):
            return NotImplemented
        return fn(other, self)

    return run


def _swapped(fn: Callable) -> Callable:
    """A reflected operator where the order does not matter. Sequences repeat themselves."""

    def run(self: Tensor, other: Operand) -> Tensor:
        return NotImplemented if isinstance(other, (str, bytes, list, tuple)) else fn(self, other)

    return run


def _operator(fn: Callable) -> Callable:
    """``a <op> b`` for operands that are no numbers gives Python the chance to try the other."""

    def run(self: Tensor, other: Operand) -> Tensor:
        if isinstance(other, np.ndarray) and other.ndim:
            other = wrap(other)
        elif not isinstance(other, (Tensor, int, float, complex, np.generic, np.ndarray)):
            return NotImplemented
        return fn(self, other)

    return run


def _rsub(other: complex | float, self: Tensor) -> Tensor:
    return el.sub(wrap(other) if isinstance(other, np.ndarray) and other.ndim else other, self)


def _rdiv(other: complex | float, self: Tensor) -> Tensor:
    """As PyTorch, by the reciprocal: then no gradient needs the operand or the result."""
    if isinstance(other, np.ndarray) and other.ndim:
        return math.fast_div(wrap(other), self)
    return math.fast_mul(math.reciprocal(self), other)


_and, _or, _xor = map(_operator, (el.bitwise_and, el.bitwise_or, el.bitwise_xor))
# The commonest operators are the fast path itself.
attach(
    __add__=math.fast_add,
    __radd__=_swapped(math.fast_add),
    __mul__=math.fast_mul,
    __rmul__=_swapped(math.fast_mul),
    __sub__=math.fast_sub,
    __truediv__=math.fast_div,
    __neg__=math.neg,
    __pos__=lambda self: self,
    __abs__=math.abs,
    __matmul__=products.matmul,
    __rmatmul__=lambda self, other: products.matmul(from_data.as_tensor(other), self),
    __pow__=math.pow,
    __rsub__=_reflected(_rsub),
    __rtruediv__=_reflected(_rdiv),
    __rpow__=_reflected(el.pow_),
    __floordiv__=_operator(el.floor_divide),
    __rfloordiv__=_reflected(el.floor_divide),
    __mod__=_operator(el.remainder),
    __rmod__=_reflected(el.remainder),
    __and__=_and,
    __rand__=_and,
    __or__=_or,
    __ror__=_or,
    __xor__=_xor,
    __rxor__=_xor,
    __lshift__=_operator(el.left_shift),
    __rshift__=_operator(el.right_shift),
    __rlshift__=_reflected(el.left_shift),
    __rrshift__=_reflected(el.right_shift),
    __invert__=el.bitwise_not,
    __lt__=_operator(math.lt),
    __le__=_operator(math.le),
    __gt__=_operator(math.gt),
    __ge__=_operator(math.ge),
    __eq__=_operator(math.eq),
    __ne__=_operator(math.ne),
    __getitem__=indexing.getitem,
    __setitem__=indexing.setitem,
    __iter__=indexing.iterate,
    __repr__=text,
)


def _length(self: Tensor) -> int:
    if self.ndim == 0:
        raise TypeError("len() of a 0-d tensor")
    return self.meta()[0][0]


def item(self: Tensor) -> Any:
    """The value of a tensor with one element, as a Python number."""
    array = self.array
    if array.size != 1:
        raise ShapeError(
            f"item: a tensor of shape {list(self.shape)} has {array.size} elements; exactly one is "
            "needed; reduce or index it first, or use tolist()"
        )
    note_read(self)
    value = values_of(self).item()
    return float(value) if array.dtype.kind == "V" else value


def tolist(self: Tensor) -> Any:
    """The values as nested lists of Python numbers."""
    note_read(self)
    array = values_of(self)
    return (array.astype(np.float32) if array.dtype.kind == "V" else array).tolist()


def _truth(self: Tensor) -> bool:
    if self.array.size != 1:
        raise ShapeError(
            f"bool: the truth of a tensor of shape {list(self.shape)} is ambiguous; use .any() or "
            ".all()"
        )
    note_read(self)
    return bool(values_of(self).item())


def _as_index(self: Tensor) -> int:
    if self.array.dtype.kind not in "iub":
        raise TypeError(f"only integer tensors can be an index, this one is {self.dtype!r}")
    return int(item(self))


def _format(self: Tensor, spec: str) -> str:
    traced = not spec and isinstance(self, Tracer)
    known = self.ndim == 0 and not self.is_meta and not traced
    return format(item(self), spec) if known else format(str(self), spec)


def _dlpack_device(self: Tensor) -> tuple[int, int]:
    """DLPack's numbers of the kind of device (1: a host, 2: CUDA) and of the device."""
    return (1 if self.device.type == "cpu" else 2), self.device.index or 0


def _array(self: Tensor, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
    array = self.numpy()
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


attach(
    __len__=_length,
    __bool__=_truth,
    __index__=_as_index,
    __float__=lambda self: float(item(self)),
    __int__=lambda self: int(item(self)),
    __complex__=lambda self: complex(item(self)),
    __format__=_format,
    __array__=_array,
    __dlpack__=from_data.to_dlpack,
    __dlpack_device__=_dlpack_device,
    __contains__=lambda self, value: bool((self == value).any()),
    item=item,
    tolist=tolist,
)


def _old_constructor(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """``Tensor(2, 3)`` (sizes) or ``Tensor([1, 2])`` (data), as old programs write it. A class
    whose ``__new__`` has made the tensor already gets here, too."""
    if "array" in self.__dict__:
        return
    kind = dtypes.get_default_dtype()
    self.array = from_data.construct(kind, args, **kwargs, any_type=True).array


attach(__init__=_old_constructor)


# --- conversion --------------------------------------------------------------------------------


def _caster(kind: dtypes.dtype) -> Callable[..., Tensor]:
    def run(self: Tensor, memory_format: Format | None = None) -> Tensor:
        return to(self, kind, memory_format=memory_format)

    return run


_CASTS = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16",
          "int": "int32", "long": "int64", "short": "int16", "char": "int8", "byte": "uint8",
          "bool": "bool", "cfloat": "complex64", "cdouble": "complex128"}  # fmt: skip
for _name, _kind in _CASTS.items():
    setattr(Tensor, _name, _caster(dtypes.BY_NAME[_kind]))


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The tensor in another type; without one, the name of the type."""
    if dtype is None:
        name = _LEGACY.get(self.dtype.name, "Tensor")
        place = self.device.type
        kind = f".{place}" if place not in ("cpu", "meta") else ""
        kind += "" if self.layout == "strided" else ".sparse"
        return f"{dtypes.dtype.namespace}{kind}.{name}"
    if isinstance(dtype, type) and dtype.__name__ in _LEGACY.values():  # FloatTensor itself
        dtype = dtype.__name__
    if isinstance(dtype, str):
        legacy = {v: k for k, v in _LEGACY.items()}
        dtype = legacy.get(dtype.rpartition(".")[2], dtype)
    return to(self, dtypes.as_dtype(dtype))


_LEGACY = {"float32": "FloatTensor", "float64": "DoubleTensor", "int64": "LongTensor",
           "int32": "IntTensor", "uint8": "ByteTensor", "bool": "BoolTensor",
           "int16": "ShortTensor", "int8": "CharTensor", "float16": "HalfTensor",
           "bfloat16": "BFloat16Tensor"}  # fmt: skip


def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or one size of it."""
    full = self.shape
    return full if dim is None else full[shape.check.one_dim(dim, self.ndim, "size")]


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in the type of ``other``, where that lies."""
    return to(self, other)


def share_memory_(self: Tensor) -> Tensor:
    """Move the data to memory that other processes can see (see ``core.sharing``), together with
    every view of it; returns self."""
    sharing.share([self])
    return self


def detach_(self: Tensor) -> Tensor:
    """Cut this tensor off the graph, in place. A view cannot be: its base stays in the graph."""
    check_captured(self, "detach_")
    if self._base is not None:
        raise AutogradError(
            f"detach_: can't detach views in-place (shape {list(self.shape)}); use detach() instead"
        )
    if isinstance(self, Tracer):
        self.__dict__.update(self.detach().__dict__)
    elif self._st is not None:
        self.leave_behind()
    self._node = None
    return self


def _dim(self: Tensor) -> int:
    return self.ndim


def _numel(self: Tensor) -> int:
    return self.shape.numel()


def _write_part(part: Tensor, value: Any) -> None:
    part[...] = value


attach(
    to=to,
    type=type_,
    cuda=moving.cuda,
    size=size,
    cpu=moving.cpu,
    get_device=moving.get_device,
    pin_memory=moving.pin_memory,
    is_pinned=moving.is_pinned,
    record_stream=moving.record_stream,
    type_as=type_as,
    set_=storage.set_,
    resize_=storage.resize_,
    unfold=aliases.windows,
    detach_=detach_,
    real=property(aliases.real, lambda self, value: _write_part(aliases.real(self), value)),
    imag=property(aliases.imag, lambda self, value: _write_part(aliases.imag(self), value)),
    T=property(lambda self: shape.permute(self, *reversed(range(self.ndim)))),
    mT=property(aliases.matrix_transpose),
    H=property(aliases.hermitian),
    mH=property(aliases.adjoint),
    backward=lambda self, gradient=None, retain_graph=None, create_graph=False, inputs=None: (
        core.backward(self, gradient, retain_graph, create_graph, inputs)
    ),
    dim=_dim,
    ndimension=_dim,
    numel=_numel,
    nelement=_numel,
    element_size=lambda self: self.meta()[1].itemsize,
    is_floating_point=comparing.is_floating_point,
    is_complex=comparing.is_complex,
    is_nonzero=comparing.is_nonzero,
    is_same_size=comparing.is_same_size,
    is_signed=comparing.is_signed,
    is_inference=lambda self: False,
    share_memory_=share_memory_,
    is_shared=sharing.is_shared,
    storage_offset=aliases.storage_offset,
    untyped_storage=storage.untyped_storage,
    storage=storage.storage,
    _is_view=lambda self: self._base is not None,
    new_tensor=lambda self, data, **o: create.new_beside(from_data.tensor, self, data, **o),
    new_full=lambda self, size, fill_value, **o: create.new_beside(
        create.full, self, size, fill_value, **o
    ),
)
for _make in (create.zeros, create.ones, create.empty):
    setattr(
        Tensor, f"new_{_make.__name__}",
        lambda self, *s, _make=_make, **o: create.new_like(_make, self, s, **o),
    )  # fmt: skip
attach(
    new=lambda self, *args, **kwargs: from_data.construct(
        self.dtype, args, **{"device": self.device, **kwargs}
    ),
)

# --- functions of the same name ----------------------------------------------------------------

_MATH = """neg negative abs absolute exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square sin cos
tan asin acos atan arcsin arccos arctan sinh cosh tanh asinh acosh atanh sigmoid relu erf reciprocal
sign floor ceil trunc round conj isnan isinf isfinite logical_not bitwise_not logical_and logical_or
logical_xor bitwise_and bitwise_or bitwise_xor eq ne lt le gt ge greater less not_equal
greater_equal less_equal remainder fmod floor_divide atan2 logaddexp maximum minimum add sub
subtract mul multiply div divide true_divide pow clamp clip clamp_min clamp_max lerp addcmul addcdiv
xlogy nan_to_num sum nansum mean var std amax amin max min argmax argmin prod any all cumsum cumprod
logsumexp count_nonzero norm matmul mm bmm mv dot inner outer addmm t equal isclose allclose"""
_SHAPE = """reshape view view_as reshape_as flatten ravel unflatten permute transpose swapaxes
swapdims movedim moveaxis squeeze unsqueeze expand expand_as broadcast_to flip fliplr
flipud roll tril triu diagonal diag trace"""
_LAYOUT = "stride clone contiguous is_contiguous dim_order is_set_to"
_ALIASES = """adjoint as_strided as_strided_scatter diag_embed diagflat diagonal_scatter dsplit
hsplit is_conj is_neg narrow_copy positive resolve_conj resolve_neg rot90 select_scatter
slice_scatter split_with_sizes sum_to_size unsafe_chunk unsafe_split vsplit"""
_OTHERS = """narrow select split chunk tensor_split unbind repeat tile gather scatter scatter_add
scatter_reduce index_copy masked_scatter take_along_dim
index_select index_add index_fill masked_select masked_fill nonzero take argwhere
repeat_interleave softmax log_softmax multinomial bernoulli sort argsort topk unique
median bincount kthvalue quantile addbmm addmv addr arccosh arcsinh arctan2 arctanh baddbmm
angle fmax fmin isneginf isposinf isreal logaddexp2 signbit
bitwise_left_shift bitwise_right_shift conj_physical copysign deg2rad digamma erfc erfinv fix
float_power frac gcd heaviside hypot i0 igamma igammac index_reduce lcm ldexp lgamma logit mvlgamma
nextafter put rad2deg renorm sgn sinc dist to_dense to_sparse msort histc
unique_consecutive aminmax corrcoef cov cummax cummin diff histogram logcumsumexp mode nanmean
nanmedian nanquantile cross det ger inverse kron logdet matrix_power slogdet vdot"""
for _name in _MATH.split():
    setattr(Tensor, _name, getattr(api, _name))
for _name in _SHAPE.split():
    setattr(Tensor, _name, getattr(shape, _name))
for _name in _LAYOUT.split():
    setattr(Tensor, _name, getattr(memory_formats, _name))
for _name in (*_OTHERS.split(), *_ALIASES.split()):
    setattr(Tensor, _name, getattr(api, _name))
attach(
    where=lambda self, condition, other: math.where(condition, self, other),
    polygamma=lambda self, n: api.polygamma(n, self),
    index_put=lambda self, indices, values, accumulate=False: api.index_put(
        self, tuple(indices), values, accumulate
    ),
)


def new_empty_strided(
    self: Tensor, size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **more: Any
) -> Tensor:
    """A tensor of this one's type and device, of any values, with these strides (in elements)."""
    kind, where = dtype or self.dtype, device or self.device
    return api.empty_strided(size, stride, dtype=kind, device=where, **more)


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What a module that loads ``other`` in this one's place keeps: this one with its values, or,
    to ``assign``, itself."""
    return other.detach() if assign else self.copy_(other).detach()


def as_subclass(self: Tensor, cls: type) -> Any:
    """The same memory as a tensor of that class, recorded where this one is."""
    out = Tensor._make_subclass(cls, self)
    if self._node is not None:
        out._node = self._node
    return out


def const_data_ptr(self: Tensor) -> int:
    """The address of the first element."""
    return self.data_ptr()


attach(
    new_empty_strided=new_empty_strided,
    module_load=module_load,
    as_subclass=as_subclass,
    const_data_ptr=const_data_ptr,
)


# --- what is loaded when it is first asked for ---------------------------------------------------
LATER = tuple(
    """bartlett_window blackman_window cdist cholesky cholesky_inverse cholesky_solve eig frexp
frobenius_norm geqrf hamming_window hann_window istft kaiser_window lobpcg lstsq lu lu_solve
lu_unpack matrix_exp matrix_rank norm_except_dim nuclear_norm orgqr ormqr pca_lowrank pdist
nonzero_static pinverse qr segment_reduce slice_inverse solve stft svd svd_lowrank symeig
triangular_solve unsafe_split_with_sizes dsmm hspmm saddmm smm spmm sspaddmm""".split()
)
_METHODS_LATER = """cholesky cholesky_inverse cholesky_solve eig frexp geqrf istft lstsq lu lu_solve
matrix_exp nonzero_static orgqr ormqr pinverse qr slice_inverse smm solve sspaddmm stft svd symeig
triangular_solve unsafe_split_with_sizes"""


class _Later:
    """A method that is loaded, and takes this one's place, when it is first asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Tensor | None, owner: type) -> Any:
        found = getattr(importlib.import_module(".later", __package__), self.name)
        setattr(Tensor, self.name, found)
        return getattr(owner if instance is None else instance, self.name)


for _name in _METHODS_LATER.split():
    setattr(Tensor, _name, _Later(_name))

install()

# --- sparse tensors: what stands above their class -----------------------------------------------
attach(**sparse.METHODS)


def _compositions() -> Any:
    return importlib.import_module(".functions.sparse.table", __package__).compose


def _as_gradient(self: SparseTensor) -> Tensor:
    """Itself, as backward may add to it when it is the gradient of a dense tensor."""
    if self.requires_grad:
        return self
    gradients = importlib.import_module(".functions.creation.sparse_gradients", __package__)
    return gradients.of_sparse(self)


setattr(Structured, "load", staticmethod(_compositions))  # noqa: B010
setattr(SparseTensor, "as_gradient", _as_gradient)  # noqa: B010
