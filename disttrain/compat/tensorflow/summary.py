"""``tf.summary``: event files for TensorBoard, by ``disttrain.metrics``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from ...metrics import SummaryWriter
from .tensor import convert

_WRITER: ContextVar[Any] = ContextVar("summary_writer", default=None)
_STEP: ContextVar[Any] = ContextVar("summary_step", default=None)
_RECORD: ContextVar[Any] = ContextVar("summary_record", default=True)
_NAMES: ContextVar[tuple[str, ...]] = ContextVar("summary_names", default=())


class Writer:
    """Writes the events of a folder; every event is on disk at once."""

    def __init__(self, inner: Any, logdir: str = "") -> None:
        self._inner, self._logdir = inner, logdir

    @contextlib.contextmanager
    def as_default(self, step: Any = None) -> Iterator[Writer]:
        """Let ``tf.summary``'s functions write here, at ``step``."""
        token, before = _WRITER.set(self), _STEP.get()
        if step is not None:
            _STEP.set(step)
        try:
            yield self
        finally:
            _WRITER.reset(token)
            _STEP.set(before)

    def set_as_default(self, step: Any = None) -> None:
        """The same from here on."""
        _WRITER.set(self)
        if step is not None:
            _STEP.set(step)

    def init(self) -> None:
        """Nothing is to be done."""

    def flush(self) -> None:
        """Every event is on disk."""

    def close(self) -> None:
        """Close the file; nothing is written any more."""
        if self._inner is not None:
            self._inner.close()
            self._inner = None


def create_file_writer(
    logdir: Any, max_queue: Any = None, flush_millis: Any = None, filename_suffix: Any = None,
    name: str | None = None, experimental_trackable: bool = False,
) -> Writer:  # fmt: skip
    """Write events into the folder ``logdir``."""
    if logdir is None:
        raise ValueError("Argument `logdir` cannot be None")
    folder = os.fspath(logdir)
    return Writer(SummaryWriter(folder, filename_suffix=filename_suffix or ""), folder)


def create_noop_writer() -> Writer:
    """Write nothing."""
    return Writer(None)


def _said(name: str, step: Any, data: Any, call: Any) -> bool:
    """Write by ``call(writer, tag, array, step)``, where there is a writer and recording is on."""
    writer = _WRITER.get()
    found = _STEP.get() if step is None else step
    if writer is None or writer._inner is None or not should_record_summaries():
        return False
    if found is None:
        raise ValueError("No step set. Please specify one either through the `step` argument or "
                         "through tf.summary.experimental.set_step()")  # fmt: skip
    array = data if isinstance(data, list) else convert(data).numpy()
    call(writer._inner, "/".join((*_NAMES.get(), name)), array, int(found))
    return True


def scalar(name: str, data: Any, step: Any = None, description: str | None = None) -> bool:
    """Write a number."""
    return _said(name, step, data, lambda w, tag, x, at: w.add_scalar(tag, float(x), at))


def histogram(
    name: str, data: Any, step: Any = None, buckets: int | None = None, description: Any = None
) -> bool:
    """Write how numbers are spread."""
    bins = buckets or 30
    return _said(
        name, step, data,
        lambda w, tag, x, at: w.add_histogram(tag, np.asarray(x), at, bins=bins, max_bins=None),
    )  # fmt: skip


def image(
    name: str, data: Any, step: Any = None, max_outputs: int = 3, description: str | None = None
) -> bool:
    """Write images of shape ``[k, h, w, c]``, the first ``max_outputs`` of them."""

    def call(writer: Any, tag: str, images: Any, at: int) -> None:
        for i, one in enumerate(images[:max_outputs]):
            writer.add_image(f"{tag}/{i}" if i else tag, one, at, dataformats="HWC")

    return _said(name, step, data, call)


def audio(
    name: str, data: Any, sample_rate: int, step: Any = None, max_outputs: int = 3,
    encoding: str | None = None, description: str | None = None,
) -> bool:  # fmt: skip
    """Write clips of shape ``[k, t, c]``, of which the first channel is heard."""

    def call(writer: Any, tag: str, clips: Any, at: int) -> None:
        for i, one in enumerate(clips[:max_outputs]):
            writer.add_audio(f"{tag}/{i}" if i else tag, one[:, 0], at, int(sample_rate))

    return _said(name, step, data, call)


def text(name: str, data: Any, step: Any = None, description: str | None = None) -> bool:
    """Write a text, or several."""

    def call(writer: Any, tag: str, found: Any, at: int) -> None:
        words = [x.decode() for x in np.asarray(found, object).reshape(-1).tolist()]
        writer.add_text(tag, "\n\n".join(words), at)

    return _said(name, step, data, call)


def write(tag: str, tensor: Any, step: Any = None, metadata: Any = None, name: Any = None) -> bool:
    """Write a tensor."""
    return _said(tag, step, tensor, lambda w, t, x, at: w.add_tensor(t, convert(x)._value, at))


def flush(writer: Any = None, name: str | None = None) -> None:
    """Every event is on disk."""


def get_step() -> Any:
    """The step that holds where none is given."""
    return _STEP.get()


def set_step(step: Any) -> None:
    """Set it."""
    _STEP.set(step)


def should_record_summaries() -> bool:
    """Is recording on?"""
    condition = _RECORD.get()
    return bool(condition() if callable(condition) else condition)


@contextlib.contextmanager
def record_if(condition: Any) -> Iterator[None]:
    """Record while ``condition`` (a truth value, or a function) holds."""
    token = _RECORD.set(condition)
    try:
        yield
    finally:
        _RECORD.reset(token)


@contextlib.contextmanager
def summary_scope(name: str, default_name: str = "summary", values: Any = None) -> Iterator[tuple]:
    """Names inside begin with ``name/``."""
    token = _NAMES.set((*_NAMES.get(), name or default_name))
    try:
        yield "/".join(_NAMES.get()), "/".join(_NAMES.get())
    finally:
        _NAMES.reset(token)


NAMED: dict[str, Any] = {
    "SummaryWriter": Writer, "create_file_writer": create_file_writer, "scalar": scalar,
    "create_noop_writer": create_noop_writer, "histogram": histogram, "image": image,
    "audio": audio, "text": text, "write": write, "flush": flush, "record_if": record_if,
    "should_record_summaries": should_record_summaries,
}  # fmt: skip
EXPERIMENTAL: dict[str, Any] = {
    "get_step": get_step,
    "set_step": set_step,
    "summary_scope": summary_scope,
}
