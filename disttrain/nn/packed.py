"""Sequences of different lengths packed into one tensor, time step by time step, without padding.

The rows of step t are those of the ``batch_sizes[t]`` sequences that are longer than t; sequences
are sorted by length for that, and the indices that sort them are kept. Knows no module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..core import Tensor, wrap
from ..core.tensor import beside
from ..core.types import dtypes
from ..errors import ConfigError, ShapeError
from ..shortcuts import barred
from . import ragged

_HOW = (
    "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence, which then "
    "sort them"
)


class _Packed(NamedTuple):
    data: Any
    batch_sizes: Any
    sorted_indices: Any = None
    unsorted_indices: Any = None


class PackedSequence(_Packed):
    """``data`` (all steps of all sequences, ...), ``batch_sizes`` (steps,), and the indices that
    sort the sequences and undo it (None: they were sorted). Made by ``pack_sequence`` and
    ``pack_padded_sequence``; RNN, LSTM and GRU take and give it."""

    def __new__(
        cls,
        data: object,
        batch_sizes: object = None,
        sorted_indices: object = None,
        unsorted_indices: object = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise TypeError(
                    "PackedSequence: Expected data to be a list or tuple of length 2 (data, "
                    "batch_sizes), where no batch_sizes are given"
                )
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """With the data converted as by ``Tensor.to``; itself if that changes nothing."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        moved = [i if i is None else i.to(data.device) for i in self[2:]]
        return type(self)(data, self.batch_sizes, *moved)

    def pin_memory(self) -> PackedSequence:
        """With all tensors pinned."""
        return type(self)(*[t if t is None else t.pin_memory() for t in self])

    def is_pinned(self) -> bool:
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self.to(*args, **{"device": "cpu", **kwargs})

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self.to(*args, **{"device": "cuda", **kwargs})

    def double(self) -> PackedSequence:
        return self.to(dtype=dtypes.float64)

    def float(self) -> PackedSequence:
        return self.to(dtype=dtypes.float32)

    def half(self) -> PackedSequence:
        return self.to(dtype=dtypes.float16)

    def long(self) -> PackedSequence:
        return self.to(dtype=dtypes.int64)

    def int(self) -> PackedSequence:
        return self.to(dtype=dtypes.int32)

    def short(self) -> PackedSequence:
        return self.to(dtype=dtypes.int16)

    def char(self) -> PackedSequence:
        return self.to(dtype=dtypes.int8)

    def byte(self) -> PackedSequence:
        return self.to(dtype=dtypes.uint8)


def invert_permutation(permutation: Any) -> Any:
    """The permutation that undoes ``permutation`` (None: that of None)."""
    if permutation is None:
        return None
    order = permutation.numpy(force=True)
    out = np.empty_like(order)
    out[order] = np.arange(order.size, dtype=order.dtype)
    return beside(permutation, out)


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int] | np.ndarray,
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Pack sequences (longest, N, ...), or (N, longest, ...), padded at their ends to one length.

    ``lengths``: the true lengths, falling unless ``enforce_sorted=False``. Raises ``ShapeError``
    where they do not fit the input.
    """
    if isinstance(lengths, Tensor) and barred():  # a program that is to serve all lengths
        return PackedSequence(*ragged.packed(input, lengths, batch_first))
    given = lengths.numpy(force=True) if isinstance(lengths, Tensor) else np.asarray(lengths)
    given = given.astype(np.int64).reshape(-1)
    x = input.transpose(0, 1) if batch_first and input.ndim > 1 else input
    if input.numel() == 0:
        raise ShapeError("pack_padded_sequence: Cannot pack empty tensors.")
    if given.size != x.shape[1]:
        raise ShapeError(
            "pack_padded_sequence: Expected `len(lengths)` to be equal to batch_size, but got "
            f"{given.size} (batch_size={x.shape[1]})"
        )
    if given.min() <= 0:
        raise ShapeError(
            "pack_padded_sequence: Length of all samples has to be greater than 0, but found an "
            "element in 'lengths' that is <= 0"
        )
    if given.max() > x.shape[0]:
        raise ShapeError(
            f"pack_padded_sequence: a length of {given.max()} was given for sequences padded to "
            f"{x.shape[0]}"
        )
    order = None
    if not enforce_sorted:
        order = np.argsort(-given, kind="stable")
        given, x = given[order], x.index_select(1, beside(x, order))
    elif (np.diff(given) > 0).any():
        raise ShapeError(
            "pack_padded_sequence: `lengths` array must be sorted in decreasing order when "
            f"`enforce_sorted` is True. {_HOW}"
        )
    steps, rows = _places(given)
    data = x.reshape(-1, *x.shape[2:]).index_select(0, beside(x, steps * x.shape[1] + rows))
    sizes = np.bincount(steps, minlength=int(given[0])).astype(np.int64)
    return PackedSequence(data, wrap(sizes), None if order is None else beside(x, order))


def _places(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The step and the sequence of every packed row, for falling lengths."""
    inside = np.arange(int(lengths[0]))[:, None] < lengths[None, :]
    steps, sequences = np.nonzero(inside)
    return steps, sequences


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Any, Any]:
    """The inverse of ``pack_padded_sequence``: the padded tensor, and the lengths (N,)."""
    sizes = sequence.batch_sizes
    if isinstance(sizes, ragged.Lengths):
        return ragged.unpacked(sequence.data, sizes, batch_first, padding_value, total_length)
    sizes = sizes.numpy(force=True)
    longest = sizes.size
    if total_length is not None:
        if total_length < longest:
            raise ConfigError(
                "pad_packed_sequence: Expected total_length to be at least the length of the "
                f"longest sequence in input, but got total_length={total_length} and max sequence "
                f"length being {longest}"
            )
        longest = total_length
    count = int(sizes[0])
    lengths = (sizes[:, None] > np.arange(count)[None, :]).sum(0)
    steps, rows = _places(lengths)
    at = np.full((longest, count), sequence.data.shape[0])  # the row of padding below the data
    at[steps, rows] = np.arange(steps.size)
    if sequence.unsorted_indices is not None:
        order = sequence.unsorted_indices.numpy(force=True)
        at, lengths = at[:, order], lengths[order]
    data = sequence.data
    padding = data.new_full((1, *data.shape[1:]), padding_value)
    at = at.T if batch_first else at
    out = ops.cat([data, padding]).index_select(
        0, beside(data, np.ascontiguousarray(at.reshape(-1)))
    )
    return out.reshape(*at.shape, *data.shape[1:]), wrap(lengths.astype(np.int64))


def pad_sequence(
    sequences: object,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Any:
    """Sequences (L_i, ...) as one tensor (longest L, N, ...), or (N, longest L, ...)."""
    if not isinstance(sequences, Iterable):
        raise ShapeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    sequences = list(sequences)
    if not sequences:
        raise ShapeError("pad_sequence: no sequences given; needed at least one")
    if padding_side not in ("left", "right"):
        raise ConfigError(f"pad_sequence: padding_side={padding_side!r}; needed 'left' or 'right'")
    rest = tuple(sequences[0].shape[1:])
    for i, s in enumerate(sequences):
        if s.ndim < 1 or tuple(s.shape[1:]) != rest:
            raise ShapeError(
                f"pad_sequence: sequence {i} has shape {list(s.shape)}, the first "
                f"{list(sequences[0].shape)}; all dimensions after the first must be equal"
            )
    longest = max(s.shape[0] for s in sequences)
    rows = []
    for s in sequences:
        missing = longest - s.shape[0]
        ends = (missing, 0) if padding_side == "left" else (0, missing)
        widths = (0, 0) * (s.ndim - 1) + ends
        rows.append(ops.pad(s, widths, "constant", padding_value) if missing else s)
    return ops.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """The inverse of ``pad_sequence``, given the lengths."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[i, : int(n)] for i, n in enumerate(lengths.tolist())]


def pack_sequence(sequences: list[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (L_i, ...), the longest first unless ``enforce_sorted=False``."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """The inverse of ``pack_sequence``."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]
