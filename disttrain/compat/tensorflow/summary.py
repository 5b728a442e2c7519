"""``tf.summary``: event files for TensorBoard, by ``disttrain.metrics``. Every event is on disk at
once, so there is nothing to flush."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
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
    """Writes the events of a folder; of none, nothing."""

    def __init__(self, logdir: Any = None, suffix: str = "") -> None:
        folder = None if logdir is None else os.fspath(logdir)
        self.inner = None if folder is None else SummaryWriter(folder, filename_suffix=suffix)

    @contextlib.contextmanager
    def as_default(self, step: Any = None) -> Iterator[Writer]:
        """Let ``tf.summary``'s functions write here, at ``step``."""
        before = _WRITER.get(), _STEP.get()
        self.set_as_default(step)
        try:
            yield self
        finally:
            _WRITER.set(before[0])
            _STEP.set(before[1])

    def set_as_default(self, step: Any = None) -> None:
        """The same from here on."""
        _WRITER.set(self)
        if step is not None:
            _STEP.set(step)

    init = flush = lambda self: None

    def close(self) -> None:
        """Close the file; nothing is written any more."""
        if self.inner is not None:
            self.inner.close()
            self.inner = None


def create_file_writer(logdir: Any, *args: Any, filename_suffix: Any = None, **_: Any) -> Writer:
    """Write events into the folder ``logdir``."""
    if logdir is None:
        raise ValueError("Argument `logdir` cannot be None")
    return Writer(logdir, filename_suffix or "")


def _images(writer: Any, tag: str, found: Any, at: int, max_outputs: int = 3, **_: Any) -> None:
    for i, one in enumerate(found[:max_outputs]):
        writer.add_image(f"{tag}/{i}" if i else tag, one, at, dataformats="HWC")


def _text(writer: Any, tag: str, found: Any, at: int, **_: Any) -> None:
    words = [x.decode() for x in np.asarray(found, object).reshape(-1).tolist()]
    writer.add_text(tag, "\n\n".join(words), at)


def _audio(writer: Any, tag: str, clips: Any, at: int, rate: Any, most: int = 3, **_: Any) -> None:
    for i, one in enumerate(clips[:most]):
        writer.add_audio(f"{tag}/{i}" if i else tag, one[:, 0], at, int(rate))


_KINDS: dict[str, Callable[..., Any]] = {
    "scalar": lambda w, tag, x, at, **_: w.add_scalar(tag, float(x), at),
    "histogram": lambda w, tag, x, at, buckets=None, **_: w.add_histogram(
        tag, np.asarray(x), at, bins=buckets or 30),
    "image": _images, "text": _text,
    "write": lambda w, tag, x, at, *_, **__: w.add_tensor(tag, convert(x)._value, at),
}  # fmt: skip


def _function(word: str) -> Callable[..., bool]:
    def function(name: str, data: Any, step: Any = None, *args: Any, **options: Any) -> bool:
        writer, at = _WRITER.get(), _STEP.get() if step is None else step
        if writer is None or writer.inner is None or not should_record_summaries():
            return False
        if at is None:
            raise ValueError("No step set. Please specify one either through the `step` argument or"
                             " through tf.summary.experimental.set_step()")  # fmt: skip
        tag = "/".join((*_NAMES.get(), name))
        _KINDS[word](writer.inner, tag, convert(data).numpy(), int(at), *args, **options)
        return True

    function.__name__ = function.__qualname__ = word
    return function


def audio(name: str, data: Any, sample_rate: Any, step: Any = None, max_outputs: int = 3,
          encoding: Any = None, description: Any = None) -> bool:  # fmt: skip
    """Write clips of shape ``[k, t, c]``, of which the first channel is heard."""
    return _function("audio")(name, data, step, sample_rate, max_outputs)


_KINDS["audio"] = _audio


def should_record_summaries() -> bool:
    """Is recording on?"""
    condition = _RECORD.get()
    return bool(condition() if callable(condition) else condition)


@contextlib.contextmanager
def _held(variable: ContextVar, value: Any) -> Iterator[tuple]:
    token = variable.set(value)
    try:
        yield "/".join(_NAMES.get()), "/".join(_NAMES.get())
    finally:
        variable.reset(token)


NAMED: dict[str, Any] = {
    **{word: _function(word) for word in _KINDS}, "audio": audio, "SummaryWriter": Writer,
    "create_file_writer": create_file_writer, "create_noop_writer": Writer,
    "flush": lambda writer=None, name=None: None, "record_if": lambda x: _held(_RECORD, x),
    "should_record_summaries": should_record_summaries,
}  # fmt: skip
EXPERIMENTAL: dict[str, Any] = {
    "get_step": _STEP.get, "set_step": _STEP.set,
    "summary_scope": lambda name, *_, **__: _held(_NAMES, (*_NAMES.get(), name)),
}  # fmt: skip
