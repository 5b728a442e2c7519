"""``out=``: write a function's result into tensors that are given.

The result decides the shape (a tensor of another shape is resized, with a warning unless it was
empty) and must fit the type of ``out``, as in an in-place operation; three tables say which
functions want more, or give more. Nothing is recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...context import thread
from ...core.gate import gate
from ...core.grad_mode import no_grad
from ...core.tensor import Tensor
from ...core.types import dtypes
from ...errors import AutogradError, DTypeError, ShapeError
from ...trace import warn
from ..primitives.write import SHARED, assign
from . import operands
from .inplace import check_overlap, fit_to, rank

# Whose results are of one type with ``out``.
_EXACT = frozenset(
    """abs addbmm addmm addmv all amax amin aminmax any argmax argmin baddbmm bitwise_not bmm
bucketize ceil cholesky_ex clamp clamp_max clamp_min conj_physical cross cummax cummin det diag dot
eigh eigvalsh fix float_power floor frac frexp frobenius_norm gather heaviside histc histogram
index_add index_copy index_select inner inv inv_ex inverse isin isneginf isposinf kthvalue lerp
linalg_cholesky linalg_lu linalg_norm log_softmax logcumsumexp lu_factor lu_factor_ex masked_select
matmul matrix_norm max median min mm mode msort mv nan_to_num nanmedian nanquantile neg nonzero
norm nuclear_norm polar qr quantile renorm round scatter scatter_add scatter_reduce searchsorted
sgn sign signbit slice_scatter slogdet softmax solve solve_ex sort svd svdvals take take_along_dim
tensordot topk triangular_solve tril triu trunc vdot vecdot vector_norm view_as_real_copy
where""".split()
)
# Whose ``out`` shares no memory with what they read, not even all of it.
_APART = frozenset(
    """cat column_stack cross dstack gather hstack index_add index_select masked_select row_stack
scatter scatter_add stack take take_along_dim vstack""".split()
)
# Whose ``out`` keeps its shape where it has as many elements as the result.
_FLAT = frozenset(("arange", "linspace", "logspace"))
# Whose results may go to one tensor, the last of them staying.
_SHARED = frozenset(("aminmax", "lstsq", "slogdet"))
# Whose results, where they are real, do not go to complex numbers.
_REAL = frozenset("hfft hfft2 hfftn irfft irfft2 irfftn nanmean".split())
# Whose results are converted to any type.
_CONVERTED = frozenset(("bernoulli", "chain_matmul", "lu"))
# Whose results are booleans, and go to nothing else.
_BOOLEAN = frozenset(("all", "any", "isneginf", "isposinf"))
# That compute in the type of ``out``.
_TYPED = frozenset(("sum", "prod", "nansum", "cumsum", "cumprod"))

_NAMES = {
    "float32": "float", "float64": "double", "float16": "half", "int64": "long int",
    "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char",
}  # fmt: skip


def into(out: Tensor, fn: Callable, args: tuple, params: dict | None = None) -> Any:
    """``fn(*args, **params)`` written to ``out``, a tensor or a tuple of them; gives ``out``."""
    params = params or {}
    outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    given = [x for a in (*args, *params.values()) for x in _tensors(a)]
    name = getattr(fn, "__name__", None) or fn.name  # type: ignore[attr-defined]
    for o in outs:
        if not isinstance(o, Tensor):
            raise TypeError(f"{name}: out must be a Tensor, not {type(o).__name__}")
    if thread.grad_enabled and any(t.requires_grad for t in (*given, *outs)):
        raise AutogradError(
            f"{name}: functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad; leave out= away, or use no_grad()"
        )
    with no_grad():
        if name in _TYPED and params.get("dtype") is not None:
            wanted = dtypes.as_dtype(params["dtype"])
            if wanted is not outs[0].dtype:
                raise DTypeError(
                    f"{name}: Expected out tensor to have dtype {wanted!r}, but got "
                    f"{outs[0].dtype!r} instead; leave dtype= away, or give an out of that type"
                )
        elif name in _TYPED:
            params = {**params, "dtype": outs[0].dtype}
        result = fn(*args, **params)
        results = result if isinstance(result, tuple) else (result,)
        for i, (o, r) in enumerate(zip(outs, results, strict=True)):
            _check(name, o, r, given, len(outs) > 1)
            _castable(name, getattr(result, "_fields", ["result"] * len(outs))[i], o, r)
            if name not in _SHARED and any(_overlap(o, other) for other in outs[:i]):
                raise ShapeError(f"{name}: two of the tensors in out= refer to one memory location")
        for o, r in zip(outs, results, strict=True):
            _fill(name, o, r)
    return result._make(outs) if hasattr(result, "_make") else out  # with its names


def _check(name: str, out: Tensor, result: Tensor, given: list, several: bool) -> None:
    same = out.dtype is result.dtype or (name in ("all", "any") and out.dtype is dtypes.uint8)
    free = name == "abs" and out.dtype is result.dtype.to_complex() and given[0].is_complex()
    free = free or (name.startswith("clamp") and len(given) > 1)  # by tensors: types are promoted
    free = free or (name in ("max", "min") and not several)  # of everything
    if name in _BOOLEAN and not same:
        raise DTypeError(
            f"{name} does not support non-boolean outputs; {name} only supports bool tensor for "
            f"result, got: {out.dtype!r}"
        )
    if name in _EXACT and not same and not free:
        raise DTypeError(
            f"{name}: Expected out tensor to have dtype {_named(result.dtype)}, but got "
            f"{_named(out.dtype)} instead; give one of that type, or leave out= away and convert "
            "the result"
        )
    if name in _REAL and out.dtype.is_complex and not result.dtype.is_complex:
        raise DTypeError(
            f"{name}: out of {out.dtype!r} given for a result of {result.dtype!r}; give a real one"
        )
    for t in given:
        check_overlap(name, out, t)
        if name in _APART and _overlap(out, t):
            raise ShapeError(f"{name}: {SHARED.format(list(t.shape))}")


def _castable(name: str, part: str, out: Tensor, result: Tensor) -> None:
    if name not in _CONVERTED and rank(result.meta()[1]) > rank(out.meta()[1]):
        raise DTypeError(
            f"{name}: result type {result.dtype!r} can't be cast to the desired output type "
            f"{out.dtype!r}: Expected {part} to be safely castable from {_titled(result.dtype)} "
            f"dtype, but got {part} with dtype {_titled(out.dtype)}"
        )


def _named(kind: dtypes.dtype) -> str:
    """A type as PyTorch's messages name it."""
    return _NAMES.get(kind.name, kind.name)


def _titled(kind: dtypes.dtype) -> str:
    """The same at the beginning of a word."""
    name = _NAMES.get(kind.name, kind.name).partition(" ")[0]
    return name[:1].upper() + name[1:]


def _overlap(a: Tensor, b: Tensor) -> bool:
    one, two = a.__dict__.get("array"), b.__dict__.get("array")
    if one.__class__ is not np.ndarray or two.__class__ is not np.ndarray:
        return False
    return one.size > 0 < two.size and np.may_share_memory(one, two)


def _tensors(a: object) -> list:
    if isinstance(a, (tuple, list)):
        return [t for t in a if isinstance(t, Tensor)]
    return [a] if isinstance(a, Tensor) else []


def _fill(name: str, out: Tensor, result: Tensor) -> None:
    if out._composes is not None:  # a sparse one
        out.copy_(result)
        return
    if name in _FLAT and out.numel() == result.numel():
        result = result.reshape(out.shape)
    shape = tuple(result.shape)
    if tuple(out.shape) != shape:
        if out.shape.numel():
            warn(
                f"{name}: An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape {list(shape)}",
            )
        out.resize_(*shape)
    if name in _CONVERTED:
        result = result.to(out.dtype)
    gate(assign, (out, fit_to(name, out, result)), {})


def fills(fn: Callable) -> Callable:
    """``fn`` with the argument ``out``."""

    @functools.wraps(fn)
    def run(*args: object, out: Tensor | None = None, **params: object) -> Any:
        if out is not None:
            return into(out, fn, args, params)
        try:
            if not args or not isinstance(args[0], Tensor):
                operands.check(fn, args, params)
            return fn(*args, **params)
        except TypeError as error:
            return operands.otherwise(run, args, params, error)
        except operands.MISREAD as error:
            operands.recheck(fn, args, params, error)
            raise

    return run


def makes(fn: Callable) -> Callable:
    """``fn``, which makes a tensor from none, with the argument ``out``, whose type and
    device are taken."""

    @functools.wraps(fn)
    def run(*args: object, out: Tensor | None = None, **params: object) -> Any:
        if out is None:
            return fn(*args, **params)
        params["dtype"] = params.get("dtype") or out.dtype
        params["device"] = params.get("device") or out.device
        wanted = params.pop("requires_grad", False)
        into(out, fn, args, params)
        return out.requires_grad_() if wanted else out

    return run


_FILLS = """addbmm addcdiv addcmul addmm addmv addr all amax amin any argmax argmin argsort atan2
baddbmm bernoulli bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
bitwise_xor bmm bucketize ceil clamp clamp_max clamp_min clip complex conj_physical copysign cumprod
cumsum deg2rad diag digamma div divide dot erfc erfinv fix float_power floor_divide fmod frac
frobenius_norm gather gcd heaviside hstack hypot i0 igamma igammac index_add index_copy index_select
inner kthvalue lcm ldexp lerp lgamma logaddexp logical_and logical_not logical_or logical_xor logit
logsumexp masked_select max maximum median min minimum mm mode msort multinomial mv mvlgamma
nan_to_num nanmean nansum narrow_copy nextafter nonzero norm outer polygamma prod quantile rad2deg
remainder renorm round scatter scatter_add scatter_reduce searchsorted sinc softmax log_softmax
sort std subtract take take_along_dim tan topk tril triu true_divide trunc var vstack where xlogy
exp2 expm1 log2 log10 log1p asin acos atan arcsin arccos arctan sinh cosh asinh acosh atanh arcsinh
arccosh arctanh arctan2 reciprocal column_stack dstack row_stack logcumsumexp cummax cummin aminmax
kron cross diff fmax fmin logaddexp2 isposinf isneginf signbit vdot ger matrix_power
chain_matmul histogram inverse polar slogdet
nanmedian nanquantile count_nonzero repeat_interleave isin tensordot angle histc slice_scatter
view_as_real_copy"""
# Without ``out``: their arguments are looked at. (``cat`` and ``stack`` look at their own.)
_CHECKED = """allclose argwhere atleast_1d atleast_2d atleast_3d meshgrid block_diag can_cast
cartesian_prod bincount broadcast_to chunk clone det detach diagonal dist equal flatten flip imag
is_complex is_floating_point is_nonzero isclose isfinite isinf isnan numel ravel real reshape roll
rsub split squeeze t tile trace unique tensor_split hsplit vsplit dsplit unflatten moveaxis
movedim swapaxes swapdims transpose permute unsqueeze unbind rot90 fliplr flipud expand_copy
logdet pinverse cholesky_inverse cov corrcoef is_same_size is_signed masked_fill masked_scatter
bilinear diagflat diag_embed unique_consecutive trapz trapezoid cumulative_trapezoid select narrow
index_put index_fill"""
_MAKES = """arange empty eye full linspace logspace ones rand randint randn randperm zeros"""
_LIKE = """empty_like full_like ones_like rand_like randint_like randn_like zeros_like normal"""


def publish(api: object) -> None:
    """Give the functions of the module ``api`` their ``out`` where they have none of their own, and
    have them look at their arguments."""
    kinds = ((_FILLS, fills), (_MAKES, makes), (_LIKE, fills), (_CHECKED, operands.checked))
    for names, how in kinds:
        for name in names.split():
            fn = getattr(api, name, None)
            if fn is not None and not getattr(fn, "has_out", False):
                setattr(api, name, how(fn))
