"""What a program iterates over: one pass through a pipeline, with its position. Knows no stage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...core import Tensor, wrap
from ...errors import ConfigError
from .stage import Pass, State

_KIND = "disttrain.data.pipeline"


class PipelineIterator(Iterator):
    """Elements of one pass; several threads may ask. ``state_dict()`` between two elements is the
    position, with what waits in buffers; ``load_state_dict`` goes there, in this program or another
    one. ``close()`` ends its threads, which its end and the loss of it do, too."""

    def __init__(self, begun: Pass, shown: Callable[[Any], Any]) -> None:
        self._pass, self._shown = begun, shown
        self._turn = threading.Lock()
        self.finished = self._closed = False

    def __iter__(self) -> PipelineIterator:
        return self

    def __next__(self) -> Any:
        with self._turn:
            if self.finished or self._closed:
                raise StopIteration
            try:
                element = self._pass.next()
            except StopIteration:
                self.finished = True
                self._pass.close()
                raise
        return self._shown(element)

    def state_dict(self) -> State:
        """The position: tensors, numbers and texts."""
        with self._turn:
            state = None if self.finished else _packed(self._pass.state())
            return {"kind": _KIND, "finished": self.finished, "pass": state}

    def load_state_dict(self, state_dict: State) -> None:
        """Go on there, on an iterator of a pipeline made alike of which nothing was taken yet."""
        check(state_dict)
        with self._turn:
            self.finished = bool(state_dict["finished"])
            if self.finished:
                self._pass.close()
                return
            try:
                self._pass.restore(_unpacked(state_dict["pass"]))
            except (KeyError, TypeError, AttributeError) as error:
                raise ConfigError(
                    f"Pipeline: the position given is one of another pipeline: {error!r}; load it "
                    "into a pipeline of the same stages"
                ) from None

    def close(self) -> None:
        """End it: nothing comes any more."""
        if not self._closed:
            self._closed = True
            self._pass.close()

    def __del__(self) -> None:
        if "_closed" in self.__dict__:
            self.close()


def check(state: Any) -> None:
    """Refuse what no ``state_dict`` of a pipeline is."""
    if not isinstance(state, dict) or state.get("kind") != _KIND:
        given = sorted(state) if isinstance(state, dict) else type(state).__name__
        raise ConfigError(
            f"Pipeline.load_state_dict: {given} given; give what state_dict() of an iterator of a "
            "pipeline has returned"
        )


def fresh() -> State:
    """The position of a pass that has ended."""
    return {"kind": _KIND, "finished": True, "pass": None}


def _packed(value: Any) -> Any:
    """Bytes as tensors, which every checkpoint holds."""
    if isinstance(value, bytes):
        return wrap(np.frombuffer(value, np.uint8).copy())
    if isinstance(value, dict):
        return {k: _packed(v) for k, v in value.items()}
    return [_packed(v) for v in value] if isinstance(value, (list, tuple)) else value


def _unpacked(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.cpu().numpy().tobytes()
    if isinstance(value, dict):
        return {k: _unpacked(v) for k, v in value.items()}
    return [_unpacked(v) for v in value] if isinstance(value, (list, tuple)) else value
