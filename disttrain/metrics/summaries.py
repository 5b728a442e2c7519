"""What an event says of a run, as ``Summary.Value`` messages: numbers, histograms, images, text and
what TensorBoard's plugins read. Field numbers are those of TensorFlow's ``summary.proto`` and
``tensor.proto`` and of the plugins' own files.

Each function gives the bytes of one value (or of several) of a summary. Knows no file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..protobuf import double, doubles, integer, nested, single, string

_TYPES = {  # numpy's type -> TensorFlow's number
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8,
    "int64": 9, "bool": 10, "uint16": 17, "complex128": 18, "float16": 19, "uint32": 22,
    "uint64": 23,
}  # fmt: skip
_STRING = 7
_SUCCESS = 1


def _value(tag: str, *parts: bytes) -> bytes:
    return nested(1, string(1, tag) + b"".join(parts))


def _plugin(name: str, content: bytes = b"") -> bytes:
    """The metadata of a value: which plugin reads it, and what that is told."""
    return nested(9, nested(1, string(1, name) + (nested(2, content) if content else b"")))


def _shape(sizes: Sequence[int]) -> bytes:
    return b"".join(nested(2, integer(1, n)) for n in sizes)


def _tensor(array: np.ndarray) -> bytes:
    kind = _TYPES.get(array.dtype.name)
    if kind is None:
        raise ConfigError(f"a tensor of type {array.dtype} cannot be written to an event file")
    data = np.ascontiguousarray(array).tobytes()
    return nested(8, integer(1, kind) + nested(2, _shape(array.shape)) + nested(4, data))


def _strings(texts: Sequence[str], sizes: Sequence[int]) -> bytes:
    held = b"".join(string(8, t) for t in texts)
    return nested(8, integer(1, _STRING) + nested(2, _shape(sizes)) + held)


def scalar(tag: str, value: float) -> bytes:
    """A number, as float32."""
    return _value(tag, single(2, value))


def scalar_tensor(tag: str, value: float, kind: str) -> bytes:
    """A number in the type ``kind``, as the plugin of scalars has it."""
    return _value(tag, _tensor(np.asarray(value, kind)), _plugin("scalars"))


def tensor(tag: str, array: np.ndarray) -> bytes:
    """An array as it is."""
    return _value(tag, _tensor(array), _plugin("tensor"))


def text(tag: str, words: str) -> bytes:
    """Markdown."""
    return _value(f"{tag}/text_summary", _strings([words], [1]), _plugin("text"))


# --- histograms --------------------------------------------------------------------------------
def default_bins() -> list[float]:
    """TensorFlow's limits: from 1e-12 on by tenths, to both sides."""
    value, ahead = 1e-12, []
    while value < 1e20:
        ahead.append(value)
        value *= 1.1
    return [-v for v in reversed(ahead)] + [0.0] + ahead


def histogram(tag: str, values: np.ndarray, bins: Any, max_bins: int | None = None) -> bytes:
    """How many of ``values`` lie between limits, which ``bins`` says as numpy's histogram does, or
    "tensorflow"."""
    flat = values.reshape(-1)
    if not flat.size:
        raise ValueError("add_histogram: the input has no element.")
    flat = flat.astype(np.float64)
    counts, limits = np.histogram(flat, default_bins() if bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        step = len(counts) // max_bins
        rest = len(counts) % step
        padded = np.pad(counts, (0, step - rest if rest else 0))
        counts = padded.reshape(-1, step).sum(1)
        limits = np.concatenate([limits[:-1:step], limits[-1:]])
    filled = np.flatnonzero(counts)
    if not filled.size:
        raise ValueError("add_histogram: the histogram is empty: no value lies between its limits")
    first, last = int(filled[0]), int(filled[-1]) + 1
    # The bucket before the first one is empty: its limit is where that begins.
    kept = [0.0, *counts[first:last]] if first == 0 else counts[first - 1 : last]
    ends = limits[first : last + 1]
    facts = (float(flat.min()), float(flat.max()), len(flat), float(flat.sum()), float(flat @ flat))
    return histogram_raw(tag, *facts, ends.tolist(), [float(c) for c in kept])


def histogram_raw(
    tag: str, least: float, most: float, count: float, total: float, squares: float,
    limits: Sequence[float], counts: Sequence[float],
) -> bytes:  # fmt: skip
    """A histogram that is given: of each bucket its upper limit and how many are in it."""
    if len(limits) != len(counts):
        raise ValueError(
            f"add_histogram_raw: len(bucket_limits) {len(limits)} != len(bucket_counts) "
            f"{len(counts)}"
        )
    facts = (least, most, count, total, squares)
    message = b"".join(double(i + 1, float(x)) for i, x in enumerate(facts))
    return _value(tag, nested(5, message + doubles(6, limits) + doubles(7, counts)))


# --- pictures and sound -------------------------------------------------------------------------
def png(pixels: np.ndarray, others: Sequence[np.ndarray] = (), fps: float = 4) -> bytes:
    """A PNG file (RFC 2083) of ``pixels`` (height, width, 1, 3 or 4), uint8; with ``others`` an
    animated one (APNG), which shows the first one where that is not known."""
    height, width, channels = pixels.shape
    colours = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, 8, colours, 0, 0, 0)
    parts = [_chunk(b"IHDR", head)]
    if others:
        parts.append(_chunk(b"acTL", struct.pack(">II", 1 + len(others), 0)))
    number = 0
    for i, frame in enumerate((pixels, *others)):
        if others:
            delay = max(1, round(1000 / fps)), 1000
            control = struct.pack(">IIIIIHHBB", number, width, height, 0, 0, *delay, 0, 0)
            parts.append(_chunk(b"fcTL", control))
            number += 1
        rows = np.zeros((height, 1 + width * channels), np.uint8)  # each with its filter: none
        rows[:, 1:] = frame.reshape(height, -1)
        data = zlib.compress(rows.tobytes(), 6)
        parts.append(
            _chunk(b"fdAT", struct.pack(">I", number) + data) if i else _chunk(b"IDAT", data)
        )
        number += bool(i)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


def image(tag: str, pixels: np.ndarray) -> bytes:
    """A picture (height, width, channels), uint8."""
    height, width, channels = pixels.shape
    return encoded_image(tag, png(pixels), height, width, channels)


def encoded_image(tag: str, data: bytes, height: int, width: int, channels: int) -> bytes:
    """A picture that is a file already (PNG, GIF)."""
    sizes = integer(1, height) + integer(2, width) + integer(3, channels)
    return _value(tag, nested(4, sizes + nested(4, data)))


def audio(tag: str, samples: np.ndarray, rate: int) -> bytes:
    """Sound (frames, channels) in [-1, 1], as a WAV file of 16 bits."""
    frames, channels = samples.shape
    data = (np.clip(samples, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * 2, channels * 2, 16)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form
    body += b"data" + struct.pack("<I", len(data)) + data
    wav = b"RIFF" + struct.pack("<I", len(body)) + body
    sizes = single(1, rate) + integer(2, channels) + integer(3, frames)
    return _value(tag, nested(6, sizes + nested(4, wav) + string(5, "audio/wav")))


# --- what plugins read --------------------------------------------------------------------------
def pr_curve(tag: str, table: np.ndarray, thresholds: int) -> bytes:
    """Rows for each threshold: true and false positives, true and false negatives, precision,
    recall."""
    content = integer(1, 0) + integer(2, thresholds)
    return _value(tag, _tensor(table.astype(np.float32)), _plugin("pr_curves", content))


def pr_table(
    labels: np.ndarray, predictions: np.ndarray, thresholds: int, weights: np.ndarray | float
) -> np.ndarray:
    """``pr_curve``'s table of ``predictions`` in [0, 1] of ``labels`` (0 or 1)."""
    bucket = np.int32(np.floor(predictions * (thresholds - 1)))
    weight = np.broadcast_to(np.asarray(weights, np.float64), labels.shape)
    sums = []
    for wanted in (labels, 1.0 - labels):
        counts = np.bincount(bucket, weight * wanted, minlength=thresholds)[:thresholds]
        sums.append(np.cumsum(counts[::-1])[::-1])
    hits, misses = sums
    tiny = 1e-7
    found = hits / np.maximum(tiny, hits + misses)
    recall = hits / np.maximum(tiny, hits[0])
    return np.stack([hits, misses, misses[0] - misses, hits[0] - hits, found, recall])


def mesh(tag: str, vertices: np.ndarray, colors: Any, faces: Any, config: Any) -> bytes:
    """Points (batch, n, 3), their colours, and triangles between them."""
    given = [(1, "VERTEX", vertices), (2, "FACE", faces), (3, "COLOR", colors)]
    there = [(kind, name, np.asarray(a)) for kind, name, a in given if a is not None]
    components = sum(1 << kind for kind, _, _ in there)
    out = b""
    for kind, name, array in there:
        content = string(2, tag) + integer(3, kind) + integer(7, components)
        content += string(5, json.dumps(config or {}, sort_keys=True)) + integer(1, 0)
        content += nested(6, b"".join(_raw_varint(n) for n in array.shape))
        array = array.astype(np.float32 if kind == 1 else np.int32 if kind == 2 else np.uint8)
        out += _value(f"{tag}_{name}", _tensor(array), _plugin("mesh", content))
    return out


def _raw_varint(n: int) -> bytes:
    return integer(1, n)[1:]  # without the field's key


def custom_scalars(layout: Mapping[str, Mapping[str, Sequence]]) -> bytes:
    """Charts: category -> title -> ["Multiline" or "Margin", tags]."""
    categories = b""
    for name, charts in layout.items():
        body = string(1, name)
        for title, (kind, tags, *_) in charts.items():
            if kind == "Margin":
                if len(tags) != 3:
                    raise ConfigError(
                        f"add_custom_scalars: {title!r} needs 3 tags, not {len(tags)}"
                    )
                series = string(1, tags[0]) + string(2, tags[1]) + string(3, tags[2])
                chart = nested(3, nested(1, series))
            else:
                chart = nested(2, b"".join(string(1, t) for t in tags))
            body += nested(2, string(1, title) + chart)
        categories += nested(2, body)
    message = integer(1, 0) + categories
    held = nested(8, integer(1, _STRING) + nested(2, b"") + nested(8, message))
    return _value("custom_scalars__config__", held, _plugin("custom_scalars"))


# --- hyperparameters ----------------------------------------------------------------------------
def hparams(
    given: Mapping[str, Any], metrics: Mapping[str, Any], domains: Mapping[str, Sequence]
) -> tuple[bytes, bytes, bytes]:
    """The hyperparameters of a run and the names of its results: what the experiment is, how the
    session begins, how it ends."""
    infos, values = b"", b""
    for name, value in given.items():
        kind, message = _json_value(name, value)
        domain = b""
        if name in domains:
            listed = b"".join(nested(1, _json_value(name, v)[1]) for v in domains[name])
            domain = nested(5, listed)
        infos += nested(4, string(1, name) + integer(4, kind) + domain)
        values += nested(1, string(1, name) + nested(2, message))
    measured = b"".join(nested(5, nested(1, string(2, name))) for name in metrics)
    contents = (
        ("experiment", nested(2, infos + measured)),
        ("session_start_info", nested(3, values)),
        ("session_end_info", nested(4, integer(1, _SUCCESS))),
    )
    experiment, start, end = (
        _value(f"_hparams_/{name}", _plugin("hparams", integer(1, 0) + content))
        for name, content in contents
    )
    return experiment, start, end


def _json_value(name: str, value: Any) -> tuple[int, bytes]:
    """The kind of a hyperparameter (1: text, 2: truth value, 3: number), and its message."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return 2, integer(4, value)
    if isinstance(value, (int, float)):
        return 3, double(2, float(value))
    if isinstance(value, str):
        return 1, string(3, value)
    raise ValueError(
        f"add_hparams: value of {name!r} should be one of int, float, str, bool, or torch.Tensor; "
        f"{type(value).__name__} given"
    )
