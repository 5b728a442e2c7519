"""Values between stages: trees of tensors as messages of a group.

Each message begins with one number: that what follows has the form of last time, or how many bytes
say the new form, or that there will be nothing, because a stage failed. So shapes travel when they
change, and nobody needs to know them beforehand. Knows groups and trees, no stages.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...backends.device.array import DeviceArray
from ...backends.device.memory import memory_of
from ...comm.group.group import ProcessGroup
from ...core.tensor import Tensor
from ...core.types import dtypes
from ...errors import ConfigError
from ...ops.api import empty
from ..collectives import objects

_TAGS_AT = 1 << 31  # above the tags of programs
_MICROS, _STAGES = 1 << 16, 1 << 13
_AS_BEFORE, _NOTHING = 0, -1
_AGREEING = _TAGS_AT + 2 * _STAGES * _MICROS  # behind those of the stages
_KEPT = (type(None), bool, int, float, str, bytes)  # values that nobody can change


class Lost(Exception):
    """The message says that its sender, or somebody before it, has failed."""


def tag_of(stage: int, backward: bool, micro: int) -> int:
    """The tag of what ``stage`` sends."""
    if micro >= _MICROS or stage >= _STAGES:
        raise ConfigError(
            f"pipeline: stage {stage}, micro-batch {micro}; at most {_STAGES} stages and {_MICROS} "
            "micro-batches are possible"
        )
    return _TAGS_AT + (2 * stage + backward) * _MICROS + micro


def _raw(array: DeviceArray | np.ndarray) -> Any:
    return memory_of(array).raw(array)


class Sender:
    """The sending end of one kind of message (one tag)."""

    def __init__(self, group: ProcessGroup, peer: int, tag: int) -> None:
        self.group, self.peer, self.tag = group, peer, tag
        self.form: Any = None
        self.raw: bytes | None = None  # of a form with values in it

    def send(self, value: object) -> list:
        """Start to send; the works to wait for."""
        tensors: list[Tensor] = []
        plain: list = []
        form = [
            _form(value, tensors, plain),
            [[list(t.shape), t.dtype.name, t.requires_grad, t.device.type] for t in tensors],
        ]
        # Values are compared as bytes: 1 == True, and a set that has changed equals itself.
        raw = objects.encode(form).tobytes() if plain else None
        if form == self.form and raw == self.raw:
            works = [self._put(np.array([_AS_BEFORE], np.int64))]
        else:
            told = objects.encode(form)
            works = [self._put(np.array([told.size], np.int64)), self._put(told)]
            self.form, self.raw = form, raw
        return works + [self._put(_raw(t.detach().array)) for t in tensors]

    def send_nothing(self) -> list:
        """Say that there will be nothing."""
        self.form = None
        return [self._put(np.array([_NOTHING], np.int64))]

    def _put(self, array: Any) -> Any:
        return self.group.isend(array, self.peer, self.tag)


class Receiver:
    """The receiving end."""

    def __init__(self, group: ProcessGroup, peer: int, tag: int) -> None:
        self.group, self.peer, self.tag = group, peer, tag
        self.form: Any = None
        self.head = np.empty(1, np.int64)
        self.work: Any = None

    def start(self) -> None:
        """Begin to receive."""
        if self.work is None:
            self.work = self.group.irecv(self.head, self.peer, self.tag)

    def take(self) -> Any:
        """The value. Its tensors require grad where the sender's do. Raises ``Lost``."""
        self.start()
        self.work.wait()
        self.work = None
        told = int(self.head[0])
        if told == _NOTHING:
            self.form = None
            raise Lost
        if told != _AS_BEFORE:
            text = np.empty(told, np.uint8)
            self.group.recv(text, self.peer, self.tag)
            self.form = objects.decode(text)
        form, metas = self.form
        tensors = []
        for shape, kind, requires_grad, device_type in metas:
            t: Any = empty(tuple(shape), dtype=dtypes.as_dtype(kind), device=device_type)
            self.group.recv(_raw(t.array), self.peer, self.tag)
            tensors.append(t.requires_grad_() if requires_grad else t)
        return _value(form, tensors)


# --- agreement: by messages, since ranks call a step from different lines ------------------------


def highest(group: ProcessGroup, value: int) -> int:
    """The greatest of all ranks' numbers, on every rank."""
    best = np.array([value], np.int64)
    if group.rank:
        group.send(best, 0, _AGREEING)
        group.recv(best, 0, _AGREEING)
        return int(best[0])
    got = np.empty(1, np.int64)
    for rank in range(1, group.size):
        group.recv(got, rank, _AGREEING)
        np.maximum(best, got, out=best)
    for rank in range(1, group.size):
        group.send(best, rank, _AGREEING)
    return int(best[0])


def told_by(group: ProcessGroup, value: list | None, root: int) -> Any:
    """The plain data of ``root``, on every rank."""
    if group.rank != root:
        return objects.recv(group, root, _AGREEING)[0]
    for rank in range(group.size):
        if rank != root:
            objects.send(group, value, rank, _AGREEING)
    return value


def everyones(group: ProcessGroup, value: object) -> list:
    """Every rank's plain data, by rank."""
    if group.rank:
        objects.send(group, value, 0, _AGREEING)
        return told_by(group, None, 0)
    others = [objects.recv(group, rank, _AGREEING)[0] for rank in range(1, group.size)]
    return told_by(group, [value, *others], 0)


def _form(value: object, tensors: list[Tensor], plain: list) -> Any:
    """``value`` as plain data, with numbers in place of its tensors, which go to ``tensors``;
    ``plain`` gets its other values."""
    if isinstance(value, Tensor):
        if isinstance(value.array, ArrayKind) and not isinstance(value.array, DeviceArray):
            raise ConfigError(
                f"pipeline: a stage hands on a {type(value).__name__} of shape "
                f"{list(value.shape)}; the next one may lie on another mesh: give a plain Tensor "
                "out (use_local_output=True, or .to_local()), and take it in by input_layouts"
            )
        tensors.append(value)
        return len(tensors) - 1
    if isinstance(value, dict):
        return {"dict": [[k, _form(v, tensors, plain)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_form(v, tensors, plain) for v in value]}
    if value is not None:
        plain.append(value)
    return {"plain": value}


def _value(form: dict | int, tensors: list[Tensor]) -> Any:
    if isinstance(form, int):
        return tensors[form]
    ((kind, parts),) = form.items()
    if kind == "plain":  # the form is kept: what may change is the program's own
        return parts if isinstance(parts, _KEPT) else copy.deepcopy(parts)
    if kind == "dict":
        return {k: _value(v, tensors) for k, v in parts}
    made = [_value(v, tensors) for v in parts]
    return made if kind == "list" else tuple(made)
