"""Element types of GGUF files: how rows of numbers become bytes, and back.

Quantized types have blocks of 32 numbers of a row, each with a scale of its own (float16), some
with a least value: ``x = scale * (q + zero)`` or ``x = scale * q + least``. Source: the format's
description and the names in ggml (https://github.com/ggml-org/ggml, docs/gguf.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ...errors import ConfigError

BLOCK = 32


@dataclass(frozen=True)
class Kind:
    """A type: its number in files; bytes of a block of ``block`` numbers; from an array of bytes
    [blocks, size] to numbers [blocks, block]; and, where such files can be written, back."""

    name: str
    code: int
    size: int
    block: int
    unpack: Callable[[np.ndarray], np.ndarray]
    pack: Callable[[np.ndarray], np.ndarray] | None = None

    def num_bytes(self, shape: tuple[int, ...]) -> int:
        """Of a tensor; its rows must be whole blocks."""
        return math.prod(shape) // self.block * self.size

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether rows are whole blocks."""
        return self.block == 1 or (bool(shape) and shape[-1] % self.block == 0)

    def array(self, raw: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The numbers in ``raw`` (bytes)."""
        if self.block == 1:  # a view
            return self.unpack(raw).reshape(shape)
        return self.unpack(raw.reshape(-1, self.size)).reshape(shape)

    def bytes(self, array: np.ndarray) -> np.ndarray:
        """``array`` as bytes of this type."""
        if self.pack is None:
            raise ConfigError(
                f"gguf: {self.name} can be read here, not written; {', '.join(WRITTEN)} can"
            )
        if self.block == 1:
            return self.pack(array).reshape(-1)
        return self.pack(np.asarray(array, np.float32).reshape(-1, self.block)).reshape(-1)


def _plain(name: str, code: int, dtype: np.dtype) -> Kind:
    def pack(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8)

    return Kind(name, code, dtype.itemsize, 1, lambda raw: raw.view(dtype), pack)


def _scales(blocks: np.ndarray, at: int = 0) -> np.ndarray:
    """The float16 at byte ``at`` of each block, as a column of float32."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _halves(q: np.ndarray) -> np.ndarray:
    """16 bytes as 32 numbers below 16: the low halves, then the high ones."""
    return np.concatenate([q & 15, q >> 4], axis=1)


def _fifth_bits(blocks: np.ndarray, at: int) -> np.ndarray:
    """Four bytes as 32 bits, worth 16 each."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") << 4


def _pack_q8_0(x: np.ndarray) -> np.ndarray:
    scale = np.abs(x).max(1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale == 0, np.float32(0), np.float32(1) / scale)
    scaled = x * inverse
    whole = np.trunc(scaled)  # halves go away from zero
    q = whole + np.trunc(2 * (scaled - whole))
    return np.concatenate([scale.astype("<f2").view(np.uint8), q.astype(np.int8).view(np.uint8)], 1)


def _unpack_q8_0(b: np.ndarray) -> np.ndarray:
    return _scales(b) * b[:, 2:].view(np.int8).astype(np.float32)


def _unpack_q4_0(b: np.ndarray) -> np.ndarray:
    return _scales(b) * (_halves(b[:, 2:]).astype(np.float32) - 8)


def _unpack_q4_1(b: np.ndarray) -> np.ndarray:
    return _scales(b) * _halves(b[:, 4:]).astype(np.float32) + _scales(b, 2)


def _unpack_q5_0(b: np.ndarray) -> np.ndarray:
    return _scales(b) * ((_halves(b[:, 6:]) | _fifth_bits(b, 2)).astype(np.float32) - 16)


def _unpack_q5_1(b: np.ndarray) -> np.ndarray:
    q = _halves(b[:, 8:]) | _fifth_bits(b, 4)
    return _scales(b) * q.astype(np.float32) + _scales(b, 2)


_ALL = [
    _plain("F32", 0, np.dtype("<f4")),
    _plain("F16", 1, np.dtype("<f2")),
    Kind("Q4_0", 2, 18, BLOCK, _unpack_q4_0),
    Kind("Q4_1", 3, 20, BLOCK, _unpack_q4_1),
    Kind("Q5_0", 6, 22, BLOCK, _unpack_q5_0),
    Kind("Q5_1", 7, 24, BLOCK, _unpack_q5_1),
    Kind("Q8_0", 8, 34, BLOCK, _unpack_q8_0, _pack_q8_0),
    _plain("I8", 24, np.dtype("<i1")),
    _plain("I16", 25, np.dtype("<i2")),
    _plain("I32", 26, np.dtype("<i4")),
    _plain("I64", 27, np.dtype("<i8")),
    _plain("F64", 28, np.dtype("<f8")),
    _plain("BF16", 30, np.dtype(ml_dtypes.bfloat16)),
]
KINDS = {k.name: k for k in _ALL}
BY_CODE = {k.code: k for k in _ALL}
WRITTEN = [k.name for k in _ALL if k.pack is not None]


def kind_of(name: str) -> Kind:
    """The type that a user names; ``ConfigError`` where there is none."""
    found = KINDS.get(name.upper()) if isinstance(name, str) else None
    if found is None:
        raise ConfigError(f"gguf: type={name!r} given; needed is one of {', '.join(WRITTEN)}")
    return found
