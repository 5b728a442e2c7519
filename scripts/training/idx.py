"""IDX files, the format that MNIST and its relatives come in, packed by gzip or not.

A file is: two zero bytes, a byte for the element type, a byte for the number of dimensions, each
dimension as a big-endian uint32, then the elements (http://yann.lecun.com/exdb/mnist).
The header is checked, and the size it promises, before anything is allocated by it.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from disttrain.errors import ConfigError, SerializationError

_UINT8 = 0x08
_MAX_BYTES = 1 << 32


def read_idx(path: Path, num_dims: int) -> np.ndarray:
    """The uint8 array in ``path``, which must have ``num_dims`` dimensions."""
    packed = path.read_bytes()[:2] == b"\x1f\x8b"
    opened = gzip.open if packed else open
    try:
        with opened(path, "rb") as file:
            shape = _shape(path, file.read(4), num_dims, file)
            size = math.prod(shape)
            data = file.read(size + 1)  # one more, to notice what should not be there
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SerializationError(f"{path}: damaged gzip data: {error}") from None
    if len(data) != size:
        found = "more" if len(data) > size else f"only {len(data)}"
        raise SerializationError(
            f"{path}: the header promises {size} bytes for shape {shape}; the file has {found}"
        )
    return np.frombuffer(data, np.uint8).reshape(shape)


def _shape(path: Path, magic: bytes, num_dims: int, file) -> tuple[int, ...]:
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise SerializationError(
            f"{path}: starts with {magic.hex(' ') or 'nothing'}; an IDX file starts with 00 00"
        )
    if magic[2] != _UINT8 or magic[3] != num_dims:
        raise SerializationError(
            f"{path}: element type 0x{magic[2]:02x} in {magic[3]} dimensions; "
            f"type 0x08 (uint8) in {num_dims} dimensions is needed"
        )
    raw = file.read(4 * num_dims)
    if len(raw) < 4 * num_dims:
        raise SerializationError(f"{path}: ends inside its header")
    shape = struct.unpack(f">{num_dims}I", raw)
    if not 0 < math.prod(shape) <= _MAX_BYTES:
        raise SerializationError(f"{path}: shape {shape} is empty or over {_MAX_BYTES} bytes")
    return shape


def read_folder(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """``{"train": (images, labels), "test": ...}`` of a folder with MNIST's four files."""
    if not folder.is_dir():
        raise ConfigError(f"data.dir: {folder} is no folder; the folder of the IDX files is needed")
    parts = {}
    for part, stems in (("train", ("train",)), ("test", ("t10k", "test"))):
        images = read_idx(_find(folder, stems, "images"), 3)
        path = _find(folder, stems, "labels")
        labels = read_idx(path, 1)
        if len(images) != len(labels):
            raise SerializationError(
                f"{path}: {len(labels)} labels for {len(images)} images; as many are needed"
            )
        parts[part] = (images, labels)
    return parts


def _find(folder: Path, stems: tuple[str, ...], kind: str) -> Path:
    found = sorted(
        p
        for s in stems
        for p in folder.glob(f"*{s}-{kind}*")
        if p.suffix in ("", ".gz") or "idx" in p.suffix
    )
    names = {p.name.removesuffix(".gz") for p in found}
    if len(names) == 1:
        return found[0]  # the plain file sorts before the packed one
    what = f"*{stems[0]}-{kind}*" + (f" or *{stems[1]}-{kind}*" if stems[1:] else "")
    if not found:
        raise ConfigError(f"data.dir: {folder} has no file {what} (MNIST's names, .gz or not)")
    raise ConfigError(
        f"data.dir: {folder} has several files {what}: {', '.join(sorted(names))}; one is needed"
    )
