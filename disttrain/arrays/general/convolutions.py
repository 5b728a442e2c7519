"""Convolutions whose dimensions are named: margins, gaps, groups; transposed ones; windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.tensor import Tensor
from ...errors import ConfigError, OperandError, ShapeError
from ...ops import api as ops
from .checks import same_types
from .products import convolution, in_kind, operands


class ConvDimensionNumbers(NamedTuple):
    """Where batch, features and space are, in operand, kernel and result."""

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


def conv_dimension_numbers(lhs_shape: Any, rhs_shape: Any, dimension_numbers: Any
                           ) -> ConvDimensionNumbers:  # fmt: skip
    """``dimension_numbers`` (three words such as "NHWC") as numbers."""
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    n = len(lhs_shape)
    if n != len(rhs_shape):
        raise OperandError(
            f"convolution requires lhs and rhs ndim to be equal, got {n} and {len(rhs_shape)}."
        )
    if dimension_numbers is None:
        return ConvDimensionNumbers(*[tuple(range(n))] * 3)
    if not isinstance(dimension_numbers, (list, tuple)):
        raise OperandError(
            "convolution dimension_numbers must be tuple/list or None, got "
            f"{type(dimension_numbers)}."
        )
    if len(dimension_numbers) != 3:
        raise OperandError(
            "convolution dimension_numbers list/tuple must be length 3, got "
            f"{len(dimension_numbers)}."
        )
    if not all(isinstance(word, str) for word in dimension_numbers):
        raise OperandError(
            "convolution dimension_numbers elements must be strings, got "
            f"{tuple(map(type, dimension_numbers))}."
        )
    for i, word in enumerate(dimension_numbers):
        if len(word) != n:
            raise OperandError(
                f"convolution dimension_numbers[{i}] must have len equal to the ndim of lhs and "
                f"rhs, got {len(word)} for lhs and rhs shapes {lhs_shape} and {rhs_shape}."
            )
    return ConvDimensionNumbers(*_permutations(dimension_numbers))


def _permutations(words: Sequence[str]) -> list[tuple[int, ...]]:
    lhs, rhs, out = words
    for word, pair in ((lhs, "NC"), (rhs, "OI"), (out, "NC")):
        if any(word.count(letter) != 1 for letter in pair):
            raise OperandError(
                f"convolution dimension_numbers[{words.index(word)}] must contain the characters "
                f"'{pair[0]}' and '{pair[1]}' exactly once, got {word}."
            )
    space = [c for c in rhs if c not in "OI"]
    if not set(space) == set(lhs) - set("NC") == set(out) - set("NC"):
        raise OperandError(
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
        raise OperandError(f"Unknown padding type: {padding}.")
    mode = padding.upper()
    if mode == "VALID":
        return [(0, 0)] * len(in_shape)
    if mode not in ("SAME", "SAME_LOWER"):
        raise ConfigError(
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
    lhs: Tensor, rhs: Tensor, window_strides: Sequence[int], padding: Any, lhs_dilation: Any = None,
    rhs_dilation: Any = None, dimension_numbers: Any = None, feature_group_count: int = 1,
    batch_group_count: int = 1, precision: Any = None, preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Tensor:  # fmt: skip
    """The general convolution: margins and gaps of the operand, gaps of the kernel, groups."""
    a, b = lhs, rhs
    spec = conv_dimension_numbers(tuple(a.shape), tuple(b.shape), dimension_numbers)
    space = a.ndim - 2
    strides = tuple(window_strides)
    gaps, holes = ((1,) * space if d is None else tuple(d) for d in (lhs_dilation, rhs_dilation))
    sizes = [tuple(b.shape)[d] for d in spec.rhs_spec]
    if isinstance(padding, str):
        if any(g != 1 for g in gaps):
            raise ShapeError(
                "String padding is not implemented for transposed convolution using this op. "
                "Please either exactly specify the required padding or use conv_transpose."
            )
        window = [_dilated(k, h) for k, h in zip(sizes[2:], holes, strict=True)]
        padding = padtype_to_pads(
            [tuple(a.shape)[d] for d in spec.lhs_spec[2:]], window, strides, padding
        )
    try:
        pads = [(int(lo), int(hi)) for lo, hi in padding]
    except (ValueError, TypeError):
        raise ShapeError(
            "padding argument to conv_general_dilated should be a string or a sequence of (low, "
            f"high) pairs, got {padding}"
        ) from None
    _check_conv(a, b, spec, strides, feature_group_count, batch_group_count)
    if preferred_element_type is None:
        same_types("conv_general_dilated", (a, b))
    x, y = operands(a, b, preferred_element_type)
    out = convolution(
        x.permute(*spec.lhs_spec), y.permute(*spec.rhs_spec), strides, pads, gaps, holes,
        feature_group_count, batch_group_count,
    )  # fmt: skip
    order = sorted(range(a.ndim), key=spec.out_spec.__getitem__)
    return in_kind(out.permute(*order), preferred_element_type)


def _check_conv(
    a: Tensor, b: Tensor, spec: ConvDimensionNumbers, strides: tuple, groups: int, batches: int
) -> None:
    where = "conv_general_dilated"
    for name, count in (("feature_group_count", groups), ("batch_group_count", batches)):
        if count <= 0:
            raise ShapeError(f"{where} {name} must be a positive integer, got {count}.")
    features, inputs = tuple(a.shape)[spec.lhs_spec[1]], tuple(b.shape)[spec.rhs_spec[1]]
    outputs, batch = tuple(b.shape)[spec.rhs_spec[0]], tuple(a.shape)[spec.lhs_spec[0]]
    if features % groups:
        raise ShapeError(
            f"{where} feature_group_count must divide lhs feature dimension size, but {groups} "
            f"does not divide {features}."
        )
    if features // groups != inputs:
        raise ShapeError(
            f"{where} lhs feature dimension size divided by feature_group_count must equal the rhs "
            f"input feature dimension size, but {features} // {groups} != {inputs}."
        )
    if outputs % groups:
        raise ShapeError(
            f"{where} rhs output feature dimension size must be a multiple of feature_group_count, "
            f"but {outputs} is not a multiple of {groups}."
        )
    if batch % batches:
        raise ShapeError(
            f"{where} batch_group_count must divide lhs batch dimension size, but {batches} does "
            f"not divide {batch}."
        )
    if outputs % batches:
        raise ShapeError(
            f"{where} rhs output feature dimension size must be a multiple of batch_group_count, "
            f"but {outputs} is not a multiple of {batches}."
        )
    if groups > 1 and batches > 1:
        raise ShapeError(
            "At most one of batch_group_count and feature_group_count may be > 1, got "
            f"batch_group_count={batches} and feature_group_count={groups}"
        )
    if len(strides) != a.ndim - 2:
        raise ShapeError(
            f"{where} window and window_strides must have the same number of dimensions, but got "
            f"{a.ndim - 2} and {len(strides)}"
        )


def conv(
    lhs: Tensor, rhs: Tensor, window_strides: Sequence[int], padding: str, precision: Any = None,
    preferred_element_type: Any = None,
) -> Tensor:  # fmt: skip
    """The convolution of [n, c, *space] with [o, c, *space]."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: Tensor, rhs: Tensor, window_strides: Any, padding: Any, lhs_dilation: Any,
    rhs_dilation: Any,
    precision: Any = None, preferred_element_type: Any = None,
) -> Tensor:  # fmt: skip
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
        raise ShapeError(f"Invalid padding mode: {padding}")
    return low, total - low


def conv_transpose(
    lhs: Tensor, rhs: Tensor, strides: Sequence[int], padding: Any, rhs_dilation: Any = None,
    dimension_numbers: Any = None, transpose_kernel: bool = False, precision: Any = None,
    preferred_element_type: Any = None, use_consistent_padding: bool = False,
) -> Tensor:  # fmt: skip
    """The convolution with ``strides`` between the operand's elements."""
    a, b = lhs, rhs
    if a.ndim != b.ndim or a.ndim < 2:
        raise ShapeError("No 4+ dimensional dimension_number defaults.")
    if dimension_numbers is None and a.ndim not in _LAYOUTS:
        raise ShapeError("No 4+ dimensional dimension_number defaults.")
    spec = conv_dimension_numbers(
        tuple(a.shape), tuple(b.shape), dimension_numbers or _LAYOUTS[a.ndim]
    )
    holes = (1,) * (b.ndim - 2) if rhs_dilation is None else tuple(rhs_dilation)
    if use_consistent_padding or padding in ("SAME", "VALID"):
        window = [
            _dilated(tuple(b.shape)[d], h) for d, h in zip(spec.rhs_spec[2:], holes, strict=True)
        ]
        each = [padding] * len(strides) if isinstance(padding, str) else padding
        padding = [_transposed_pads(*row) for row in zip(window, strides, each, strict=True)]
    kernel = b
    if transpose_kernel:
        turned = ops.flip(b, tuple(spec.rhs_spec[2:])) if b.ndim > 2 else b
        kernel = turned.transpose(spec.rhs_spec[0], spec.rhs_spec[1])
    return conv_general_dilated(
        a, kernel, (1,) * (a.ndim - 2), padding, strides, holes, spec,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_patches(
    lhs: Tensor, filter_shape: Sequence[int], window_strides: Any, padding: Any,
    lhs_dilation: Any = None, rhs_dilation: Any = None, dimension_numbers: Any = None,
    precision: Any = None, preferred_element_type: Any = None,
) -> Tensor:  # fmt: skip
    """The windows of ``lhs``, in its features."""
    a, window = lhs, tuple(filter_shape)
    spec = conv_dimension_numbers(tuple(a.shape), (1, 1, *window), dimension_numbers)
    count, channels = int(np.prod(window)), tuple(a.shape)[spec.lhs_spec[1]]
    kernel = ops.eye(count, dtype=a.dtype).expand((channels, count, count))
    kernel = kernel.reshape(channels * count, 1, *window)
    order = sorted(range(a.ndim), key=spec.rhs_spec.__getitem__)
    return conv_general_dilated(
        a, kernel.permute(*order), window_strides, padding, lhs_dilation, rhs_dilation, spec,
        channels, preferred_element_type=preferred_element_type,
    )  # fmt: skip
