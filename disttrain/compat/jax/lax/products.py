"""``lax``'s products of matrices and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....arrays import dimension_numbers as numbered
from ....core.types import dtypes
from ....ops import api as ops
from ..array import Array, wrap
from ..types import asked as canonical
from ..types import result_kind
from .elementwise import check_same_types, value_of

DotDimensionNumbers = tuple
PrecisionLike = Any


class ConvDimensionNumbers(NamedTuple):
    """Where batch, features and space are, in operand, kernel and result."""

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


def _in_kind(out: Any, preferred: Any, arrays: Sequence[Array]) -> Array:
    weak = preferred is None and all(a.weak_type for a in arrays)
    return wrap(out if preferred is None else out.to(dtypes.of(canonical(preferred))), weak)


def _operands(name: str, lhs: Any, rhs: Any, preferred: Any) -> tuple[list[Array], list[Any]]:
    """Both as arrays, and as tensors of one type, in which they are multiplied."""
    arrays = [value_of(name, lhs), value_of(name, rhs, 1)]
    kind = result_kind(*((a.dtype, a.weak_type) for a in arrays))[0]
    if preferred is not None and canonical(preferred).itemsize > kind.itemsize:
        kind = canonical(preferred)
    return arrays, [a._value.to(dtypes.of(kind)) for a in arrays]


def dot_general(
    lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None,
    preferred_element_type: Any = None, *, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Products of ``lhs`` and ``rhs`` over the contracting dimensions, along the batch ones."""
    (a, b), (x, y) = _operands("dot_general", lhs, rhs, preferred_element_type)
    contracting, batch = (tuple(map(tuple, pair)) for pair in dimension_numbers)
    _check_dot(a.shape, b.shape, contracting, batch)
    out = numbered.dot_general(x, y, contracting, batch)
    return _in_kind(out, preferred_element_type, (a, b))


def _check_dot(left: tuple, right: tuple, contracting: Any, batch: Any) -> None:
    for side, shape, c, b in zip(("lhs", "rhs"), (left, right), contracting, batch, strict=True):
        if not all(0 <= d < len(shape) for d in (*c, *b)):
            raise TypeError(
                f"dot_general requires {side} dimension numbers to be nonnegative and less than "
                f"the number of axes of the {side} value, got {side}_batch of {b} and "
                f"{side}_contracting of {c} for {side} of rank {len(shape)}"
            )
        for name, dims in (("batch", b), ("contracting", c)):
            if len(set(dims)) != len(dims):
                raise TypeError(
                    f"dot_general requires {side} {name} dimensions to be distinct, got "
                    f"{side}_{name} {dims}."
                )
        if set(c) & set(b):
            raise TypeError(
                f"dot_general requires {side} batch dimensions to be disjoint from contracting "
                f"dimensions, got {side}_batch {b} and {side}_contracting {c}."
            )
    if len(batch[0]) != len(batch[1]):
        raise TypeError(
            "dot_general requires equal numbers of lhs_batch and rhs_batch dimensions, got "
            f"lhs_batch {batch[0]} and rhs_batch {batch[1]}."
        )
    pairs = [[tuple(s[d] for d in dims) for s, dims in zip((left, right), both, strict=True)]
             for both in (batch, contracting)]  # fmt: skip
    if pairs[0][0] != pairs[0][1]:
        raise TypeError(
            "dot_general requires lhs batch dimensions and rhs batch dimensions to have the same "
            f"shape, got {pairs[0][0]} and {pairs[0][1]}."
        )
    if pairs[1][0] != pairs[1][1]:
        raise TypeError(
            "dot_general requires contracting dimensions to have the same shape, got "
            f"{pairs[1][0]} and {pairs[1][1]}."
        )


def dot(
    lhs: Any, rhs: Any, precision: Any = None, preferred_element_type: Any = None, *,
    dimension_numbers: Any = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """The product of vectors and matrices."""
    a, b = value_of("dot", lhs), value_of("dot", rhs, 1)
    if dimension_numbers is None:
        if not (1 <= a.ndim <= 2 and 1 <= b.ndim <= 2 and a.shape[-1] == b.shape[0]):
            raise ValueError(
                "jax.lax.dot: dimension_numbers must be specified when not performing simple "
                "un-batched matrix-matrix, matrix-vector, or vector-vector products; got "
                f"lhs_shape={a.shape} rhs_shape={b.shape}"
            )
        dimension_numbers = (((a.ndim - 1,), (0,)), ((), ()))
    return dot_general(a, b, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Array:
    """Products of matrices in the last two dimensions, batch by batch."""
    a, b = value_of("batch_matmul", lhs), value_of("batch_matmul", rhs, 1)
    if min(a.ndim, b.ndim) < 2:
        raise ValueError(f"Arguments to batch_matmul must be at least 2D, got {a.ndim}, {b.ndim}")
    if a.ndim != b.ndim:
        raise ValueError(f"Arguments to batch_matmul must have same ndim, got {a.ndim}, {b.ndim}")
    lead = tuple(range(a.ndim - 2))
    return dot_general(a, b, (((a.ndim - 1,), (b.ndim - 2,)), (lead, lead)))


# --- convolutions --------------------------------------------------------------------------------
def conv_dimension_numbers(lhs_shape: Any, rhs_shape: Any, dimension_numbers: Any
                           ) -> ConvDimensionNumbers:  # fmt: skip
    """``dimension_numbers`` (three words such as "NHWC") as numbers."""
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    n = len(lhs_shape)
    if n != len(rhs_shape):
        raise TypeError(
            f"convolution requires lhs and rhs ndim to be equal, got {n} and {len(rhs_shape)}."
        )
    if dimension_numbers is None:
        return ConvDimensionNumbers(*[tuple(range(n))] * 3)
    if not isinstance(dimension_numbers, (list, tuple)):
        raise TypeError(
            "convolution dimension_numbers must be tuple/list or None, got "
            f"{type(dimension_numbers)}."
        )
    if len(dimension_numbers) != 3:
        raise TypeError(
            "convolution dimension_numbers list/tuple must be length 3, got "
            f"{len(dimension_numbers)}."
        )
    if not all(isinstance(word, str) for word in dimension_numbers):
        raise TypeError(
            "convolution dimension_numbers elements must be strings, got "
            f"{tuple(map(type, dimension_numbers))}."
        )
    for i, word in enumerate(dimension_numbers):
        if len(word) != n:
            raise TypeError(
                f"convolution dimension_numbers[{i}] must have len equal to the ndim of lhs and "
                f"rhs, got {len(word)} for lhs and rhs shapes {lhs_shape} and {rhs_shape}."
            )
    return ConvDimensionNumbers(*_permutations(dimension_numbers))


def _permutations(words: Sequence[str]) -> list[tuple[int, ...]]:
    lhs, rhs, out = words
    for word, pair in ((lhs, "NC"), (rhs, "OI"), (out, "NC")):
        if any(word.count(letter) != 1 for letter in pair):
            raise TypeError(
                f"convolution dimension_numbers[{words.index(word)}] must contain the characters "
                f"'{pair[0]}' and '{pair[1]}' exactly once, got {word}."
            )
    space = [c for c in rhs if c not in "OI"]
    if not set(space) == set(lhs) - set("NC") == set(out) - set("NC"):
        raise TypeError(
            "convolution dimension_numbers elements must each have the same set of spatial "
            f"characters, got {tuple(words)}."
        )
    return [
        tuple(word.index(c) for c in (*pair, *space))
        for word, pair in ((lhs, "NC"), (rhs, "OI"), (out, "NC"))
    ]


def padtype_to_pads(in_shape: Any, window_shape: Any, window_strides: Any, padding: Any) -> list:
    """(low, high) per dimension for "VALID", "SAME" or "SAME_LOWER"."""
    if not isinstance(padding, str):
        raise TypeError(f"Unknown padding type: {padding}.")
    mode = padding.upper()
    if mode == "VALID":
        return [(0, 0)] * len(in_shape)
    if mode not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(
            f"Unrecognized padding type: expected 'VALID', 'SAME', or 'SAME_LOWER', got {padding}."
        )
    pads = []
    for n, k, s in zip(in_shape, window_shape, window_strides, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        low = total // 2 if mode == "SAME" else total - total // 2
        pads.append((low, total - low))
    return pads


def _dilated(n: int, d: int) -> int:
    return 0 if n == 0 else 1 + d * (n - 1)


def conv_general_dilated(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, lhs_dilation: Any = None,
    rhs_dilation: Any = None, dimension_numbers: Any = None, feature_group_count: int = 1,
    batch_group_count: int = 1, precision: Any = None, preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """The general convolution: margins and gaps of the operand, gaps of the kernel, groups."""
    a, b = value_of("conv_general_dilated", lhs), value_of("conv_general_dilated", rhs, 1)
    spec = conv_dimension_numbers(a.shape, b.shape, dimension_numbers)
    space = a.ndim - 2
    strides = tuple(window_strides)
    gaps, holes = (
        (1,) * space if d is None else tuple(d) for d in (lhs_dilation, rhs_dilation)
    )
    sizes = [b.shape[d] for d in spec.rhs_spec]
    if isinstance(padding, str):
        if any(g != 1 for g in gaps):
            raise ValueError(
                "String padding is not implemented for transposed convolution using this op. "
                "Please either exactly specify the required padding or use conv_transpose."
            )
        window = [_dilated(k, h) for k, h in zip(sizes[2:], holes, strict=True)]
        padding = padtype_to_pads([a.shape[d] for d in spec.lhs_spec[2:]], window, strides, padding)
    try:
        pads = [(int(lo), int(hi)) for lo, hi in padding]
    except (ValueError, TypeError):
        raise ValueError(
            "padding argument to conv_general_dilated should be a string or a sequence of (low, "
            f"high) pairs, got {padding}"
        ) from None
    _check_conv(a, b, spec, strides, feature_group_count, batch_group_count)
    if preferred_element_type is None:
        check_same_types("conv_general_dilated", (a, b))
    _, (x, y) = _operands("conv_general_dilated", a, b, preferred_element_type)
    out = numbered.convolution(
        x.permute(*spec.lhs_spec), y.permute(*spec.rhs_spec), strides, pads, gaps, holes,
        feature_group_count, batch_group_count,
    )  # fmt: skip
    order = sorted(range(a.ndim), key=spec.out_spec.__getitem__)
    return _in_kind(out.permute(*order), preferred_element_type, (a, b))


def _check_conv(
    a: Array, b: Array, spec: ConvDimensionNumbers, strides: tuple, groups: int, batches: int
) -> None:
    where = "conv_general_dilated"
    for name, count in (("feature_group_count", groups), ("batch_group_count", batches)):
        if count <= 0:
            raise ValueError(f"{where} {name} must be a positive integer, got {count}.")
    features, inputs = a.shape[spec.lhs_spec[1]], b.shape[spec.rhs_spec[1]]
    outputs, batch = b.shape[spec.rhs_spec[0]], a.shape[spec.lhs_spec[0]]
    if features % groups:
        raise ValueError(
            f"{where} feature_group_count must divide lhs feature dimension size, but {groups} "
            f"does not divide {features}."
        )
    if features // groups != inputs:
        raise ValueError(
            f"{where} lhs feature dimension size divided by feature_group_count must equal the rhs "
            f"input feature dimension size, but {features} // {groups} != {inputs}."
        )
    if outputs % groups:
        raise ValueError(
            f"{where} rhs output feature dimension size must be a multiple of feature_group_count, "
            f"but {outputs} is not a multiple of {groups}."
        )
    if batch % batches:
        raise ValueError(
            f"{where} batch_group_count must divide lhs batch dimension size, but {batches} does "
            f"not divide {batch}."
        )
    if outputs % batches:
        raise ValueError(
            f"{where} rhs output feature dimension size must be a multiple of batch_group_count, "
            f"but {outputs} is not a multiple of {batches}."
        )
    if groups > 1 and batches > 1:
        raise ValueError(
            "At most one of batch_group_count and feature_group_count may be > 1, got "
            f"batch_group_count={batches} and feature_group_count={groups}"
        )
    if len(strides) != a.ndim - 2:
        raise ValueError(
            f"{where} window and window_strides must have the same number of dimensions, but got "
            f"{a.ndim - 2} and {len(strides)}"
        )


def conv(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: str, precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:  # fmt: skip
    """The convolution of [n, c, *space] with [o, c, *space]."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: Any, rhs: Any, window_strides: Any, padding: Any, lhs_dilation: Any, rhs_dilation: Any,
    precision: Any = None, preferred_element_type: Any = None,
) -> Array:  # fmt: skip
    """``conv`` with margins and gaps."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


_LAYOUTS = {2: ("NC", "IO", "NC"), 3: ("NHC", "HIO", "NHC"), 4: ("NHWC", "HWIO", "NHWC"),
            5: ("NHWDC", "HWDIO", "NHWDC")}  # fmt: skip


def _transposed_pads(k: int, s: int, padding: Any) -> tuple[int, int]:
    if padding == "SAME":
        total = k + s - 2
        low = k - 1 if s > k - 1 else -(-total // 2)
    elif padding == "VALID":
        total, low = k + s - 2 + max(k - s, 0), k - 1
    elif isinstance(padding, tuple):
        low, total = k - padding[0] - 1, 2 * k - sum(padding) - 2
    else:
        raise ValueError(f"Invalid padding mode: {padding}")
    return low, total - low


def conv_transpose(
    lhs: Any, rhs: Any, strides: Sequence[int], padding: Any, rhs_dilation: Any = None,
    dimension_numbers: Any = None, transpose_kernel: bool = False, precision: Any = None,
    preferred_element_type: Any = None, use_consistent_padding: bool = False,
) -> Array:  # fmt: skip
    """The convolution with ``strides`` between the operand's elements."""
    a, b = value_of("conv_transpose", lhs), value_of("conv_transpose", rhs, 1)
    if a.ndim != b.ndim or a.ndim < 2:
        raise ValueError("No 4+ dimensional dimension_number defaults.")
    if dimension_numbers is None and a.ndim not in _LAYOUTS:
        raise ValueError("No 4+ dimensional dimension_number defaults.")
    spec = conv_dimension_numbers(a.shape, b.shape, dimension_numbers or _LAYOUTS[a.ndim])
    holes = (1,) * (b.ndim - 2) if rhs_dilation is None else tuple(rhs_dilation)
    if use_consistent_padding or padding in ("SAME", "VALID"):
        window = [_dilated(b.shape[d], h) for d, h in zip(spec.rhs_spec[2:], holes, strict=True)]
        each = [padding] * len(strides) if isinstance(padding, str) else padding
        padding = [_transposed_pads(*row) for row in zip(window, strides, each, strict=True)]
    kernel = b
    if transpose_kernel:
        turned = ops.flip(b._value, tuple(spec.rhs_spec[2:])) if b.ndim > 2 else b._value
        kernel = wrap(turned.transpose(spec.rhs_spec[0], spec.rhs_spec[1]), b.weak_type)
    return conv_general_dilated(
        a, kernel, (1,) * (a.ndim - 2), padding, strides, holes, spec,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_patches(
    lhs: Any, filter_shape: Sequence[int], window_strides: Any, padding: Any,
    lhs_dilation: Any = None, rhs_dilation: Any = None, dimension_numbers: Any = None,
    precision: Any = None, preferred_element_type: Any = None,
) -> Array:  # fmt: skip
    """The windows of ``lhs``, in its features."""
    a, window = value_of("conv_general_dilated_patches", lhs), tuple(filter_shape)
    spec = conv_dimension_numbers(a.shape, (1, 1, *window), dimension_numbers)
    count, channels = int(np.prod(window)), a.shape[spec.lhs_spec[1]]
    kernel = ops.eye(count, dtype=a._value.dtype).expand((channels, count, count))
    kernel = kernel.reshape(channels * count, 1, *window)
    order = sorted(range(a.ndim), key=spec.rhs_spec.__getitem__)
    return conv_general_dilated(
        a, wrap(kernel.permute(*order)), window_strides, padding, lhs_dilation, rhs_dilation, spec,
        channels, preferred_element_type=preferred_element_type,
    )  # fmt: skip


NAMES = {
    name: value for name, value in vars().items()
    if not name.startswith("_")
    and (getattr(value, "__module__", "") == __name__ or name in ("DotDimensionNumbers", "PrecisionLike"))
}  # fmt: skip
