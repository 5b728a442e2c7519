"""``tf.summary``: event files for TensorBoard, by ``disttrain.metrics``. Every event is on disk at
once, so there is nothing to flush."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...metrics import current
from .tensor import convert


def create_file_writer(
    logdir: Any, *args: Any, filename_suffix: Any = None, **_: Any
) -> current.Writer:
    """Write events into the folder ``logdir``."""
    if logdir is None:
        raise ValueError("Argument `logdir` cannot be None")
    return current.Writer(os.fspath(logdir), filename_suffix or "")


def _function(word: str) -> Callable[..., bool]:
    def function(name: str, data: Any, step: Any = None, *args: Any, **options: Any) -> bool:
        options.pop("description", None)
        if "max_outputs" in options:
            options["most"] = options.pop("max_outputs")
        return current.write(word, name, convert(data)._value, step, *args, **options)

    function.__name__ = function.__qualname__ = word
    return function


def audio(name: str, data: Any, sample_rate: Any, step: Any = None, max_outputs: int = 3,
          encoding: Any = None, description: Any = None) -> bool:  # fmt: skip
    """Write clips of shape ``[k, t, c]``, of which the first channel is heard."""
    return current.write("audio", name, convert(data)._value, step, sample_rate, max_outputs)


NAMED: dict[str, Any] = {
    **{word: _function(word) for word in current.KINDS}, "audio": audio,
    "SummaryWriter": current.Writer, "create_file_writer": create_file_writer,
    "create_noop_writer": current.Writer, "flush": lambda writer=None, name=None: None,
    "record_if": lambda x: current.held(current.RECORD, x),
    "should_record_summaries": current.recording,
}  # fmt: skip
EXPERIMENTAL: dict[str, Any] = {
    "get_step": current.STEP.get, "set_step": current.STEP.set,
    "summary_scope": lambda name, *_, **__: current.held(
        current.NAMES, (*current.NAMES.get(), name)),
}  # fmt: skip
