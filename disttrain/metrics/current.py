"""The writer, the step and the names that are in force: a function deep in a program writes numbers
without being given them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from .summary_writer import SummaryWriter

WRITER: ContextVar[Any] = ContextVar("summary_writer", default=None)
STEP: ContextVar[Any] = ContextVar("summary_step", default=None)
RECORD: ContextVar[Any] = ContextVar("summary_record", default=True)
NAMES: ContextVar[tuple[str, ...]] = ContextVar("summary_names", default=())


class Writer:
    """Writes the events of a folder; of None, nothing."""

    def __init__(self, folder: str | None = None, suffix: str = "") -> None:
        self.inner = None if folder is None else SummaryWriter(folder, filename_suffix=suffix)

    @contextlib.contextmanager
    def as_default(self, step: Any = None) -> Iterator[Writer]:
        """Let ``write`` write here, at ``step``."""
        before = WRITER.get(), STEP.get()
        self.set_as_default(step)
        try:
            yield self
        finally:
            WRITER.set(before[0])
            STEP.set(before[1])

    def set_as_default(self, step: Any = None) -> None:
        """The same from here on."""
        WRITER.set(self)
        if step is not None:
            STEP.set(step)

    def init(self) -> None:
        """Nothing: it is ready."""

    flush = init

    def close(self) -> None:
        """Close the file; nothing is written any more."""
        if self.inner is not None:
            self.inner.close()
            self.inner = None


def writer_of(folder: Any, suffix: str | None = None) -> Writer:
    """A writer into a folder, which must be said."""
    if folder is None:
        raise ValueError("Argument `logdir` cannot be None")
    return Writer(os.fspath(folder), suffix or "")


def _images(writer: Any, tag: str, found: Any, at: int, most: int = 3, **_: Any) -> None:
    for i, one in enumerate(found[:most]):
        writer.add_image(f"{tag}/{i}" if i else tag, one, at, dataformats="HWC")


def _text(writer: Any, tag: str, found: Any, at: int, **_: Any) -> None:
    words = [x.decode() for x in np.asarray(found, object).reshape(-1).tolist()]
    writer.add_text(tag, "\n\n".join(words), at)


def _audio(writer: Any, tag: str, clips: Any, at: int, rate: Any, most: int = 3) -> None:
    for i, one in enumerate(clips[:most]):
        writer.add_audio(f"{tag}/{i}" if i else tag, one[:, 0], at, int(rate))


KINDS: dict[str, Callable[..., Any]] = {
    "scalar": lambda w, tag, x, at, **_: w.add_scalar(tag, float(x), at),
    "histogram": lambda w, tag, x, at, buckets=None, **_: w.add_histogram(
        tag, np.asarray(x), at, bins=buckets or 30),
    "image": _images, "text": _text, "audio": _audio,
    "write": lambda w, tag, x, at, *_, **__: w.add_tensor(tag, x, at),
}  # fmt: skip


def recording() -> bool:
    """Whether what is said is written."""
    condition = RECORD.get()
    return bool(condition() if callable(condition) else condition)


def write(kind: str, name: str, data: Any, step: Any = None, *args: Any, **options: Any) -> bool:
    """Write ``data`` (a tensor, or an array) of one of ``KINDS`` at ``step``, or the step in force;
    whether somebody writes."""
    writer, at = WRITER.get(), STEP.get() if step is None else step
    if writer is None or writer.inner is None or not recording():
        return False
    if at is None:
        raise ValueError("No step set. Please specify one either through the `step` argument or "
                         "by the writer's as_default(step)")  # fmt: skip
    if isinstance(data, Tensor) and kind != "write":
        data = data.detach().numpy()
    KINDS[kind](writer.inner, "/".join((*NAMES.get(), name)), data, int(at), *args, **options)
    return True


@contextlib.contextmanager
def held(variable: ContextVar, value: Any) -> Iterator[tuple[str, str]]:
    """Another value of one of those above, in a block."""
    token = variable.set(value)
    try:
        yield "/".join(NAMES.get()), "/".join(NAMES.get())
    finally:
        variable.reset(token)
