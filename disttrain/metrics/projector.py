"""Embeddings for TensorBoard's projector: tables of points, their labels and pictures, as files in
the folder of a run, and the text that lists them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ShapeError
from .pictures import numbers
from .summaries import png

CONFIG = "projector_config.pbtxt"


def write_embedding(
    folder: Path, place: str, points: Any, metadata: Sequence | None, header: Sequence | None,
    pictures: Any, name: str,
) -> None:  # fmt: skip
    """The files of one table (n, dimensions) under ``folder/place``, and its entry in the list."""
    table = numbers(points)
    if table.ndim != 2:
        raise ShapeError("mat should be 2D, where mat.size(0) is the number of data points")
    home = folder / place
    home.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(repr(float(x)) for x in row) for row in table.tolist()]
    (home / "tensors.tsv").write_text("".join(f"{line}\n" for line in lines))
    entry = [f'tensor_name: "{name}"', f'tensor_path: "{place}/tensors.tsv"']
    if metadata is not None:
        if len(metadata) != len(table):
            raise ShapeError("#labels should equal with #data points")
        (home / "metadata.tsv").write_text(_labels(metadata, header), encoding="utf-8")
        entry.append(f'metadata_path: "{place}/metadata.tsv"')
    if pictures is not None:
        sprite, height, width = _sprite(numbers(pictures), len(table))
        (home / "sprite.png").write_bytes(png(sprite))
        sizes = f"single_image_dim: {width}\nsingle_image_dim: {height}"
        entry.append(f'sprite {{\nimage_path: "{place}/sprite.png"\n{sizes}\n}}')
    with (folder / CONFIG).open("a") as config:
        config.write("embeddings {\n" + "\n".join(entry) + "\n}\n")


def _labels(metadata: Sequence, header: Sequence | None) -> str:
    if header is None:
        return "".join(f"{x}\n" for x in metadata)
    if len(header) != len(metadata[0]):
        raise ShapeError(
            "len of header must be equal to the number of columns in metadata, "
            f"{len(header)} and {len(metadata[0])} given"
        )
    return "".join("\t".join(str(x) for x in row) + "\n" for row in [header, *metadata])


def _sprite(pictures: np.ndarray, count: int) -> tuple[np.ndarray, int, int]:
    """All pictures (count, channels, height, width) in one square of them."""
    if len(pictures) != count:
        raise ShapeError("#images should equal with #data points")
    _, channels, height, width = pictures.shape
    side = math.ceil(math.sqrt(count))
    scaled = np.clip(pictures * (1 if pictures.dtype == np.uint8 else 255), 0, 255).astype(np.uint8)
    whole = np.zeros((side * side, channels, height, width), np.uint8)
    whole[:count] = scaled
    grid = whole.reshape(side, side, channels, height, width).transpose(0, 3, 1, 4, 2)
    return grid.reshape(side * height, side * width, channels), height, width
