"""Models of finished runs: which checkpoint is the newest, and its model in one process.

However many ranks have written a checkpoint, and under whichever strategy (DDP, ZeRO, FSDP, tensor
parallelism, stages of a pipeline), it holds whole tensors under the names of the model. So a model
that is built by one process is filled from it, without the ranks. Names that wrappers put in
between (``module.``, ``_orig_mod.``) are taken away.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core import Tensor
from ...errors import ConfigError, DisttrainError, SerializationError, StateDictError
from ...nn.module import Module
from . import tools
from .filesystem import read_manifest

WRAPPERS = ("module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
_TRIES = 10
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Trained:
    """What a training program says of its model, for ``disttrain export``.

    ``build()`` makes the model, with any weights. ``args`` and ``kwargs``: an example of its
    inputs. ``dynamic``: which sizes may change, as ``dt.export`` takes it. ``key``: under which
    name the program's checkpoints have the model's state dict ("": they are one).
    ``pretrained(model)``: its state dict and config in Hugging Face's names (default: its own names
    and no config); ``vocabulary``: of a model of texts, for GGUF.
    """

    build: Callable[[], Module]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic: Any = None
    key: str = "model"
    pretrained: Callable[[Module], tuple[Mapping[str, Tensor], Mapping[str, Any]]] | None = None
    vocabulary: Any = None


def newest_checkpoint(path: str | os.PathLike) -> str:
    """The newest finished checkpoint of ``path``: a checkpoint, the folder of a run, or of runs.
    Newest is the last by name, with numbers taken as numbers; ``ConfigError`` where there is
    none."""
    where = os.fspath(path)
    found, before = sorted(tools.find(where), key=_order), None
    while found != before:  # (a program that runs may write and delete them meanwhile)
        for checkpoint in reversed(found):
            if not tools.summary(checkpoint).problem:
                return checkpoint
        found, before = sorted(tools.find(where), key=_order), found
    unfinished = f"; {len(found)} there are not finished" if found else ""
    raise ConfigError(
        f"{where} holds no checkpoint{unfinished}. Name the folder of a run, or of a checkpoint"
    )


def load_newest(
    build: Callable[[], Module], path: str | os.PathLike, key: str = "model"
) -> tuple[str, Any]:
    """The newest checkpoint of ``path``, and ``load_model`` of it. A program that runs may delete
    one while it is read; then it is the next one."""
    for _ in range(_TRIES):
        checkpoint = newest_checkpoint(path)
        try:
            return checkpoint, load_model(build, checkpoint, key)
        except DisttrainError:
            if not tools.summary(checkpoint).problem:
                raise
    raise ConfigError(
        f"{os.fspath(path)}: its checkpoints are deleted faster than they are read; name one that "
        "is kept"
    )


def _order(path: str) -> list[Any]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(path)]


def load_model(
    build: Callable[[], Module], checkpoint: str | os.PathLike, key: str = "model"
) -> Any:
    """The module that ``build()`` makes, with the weights that ``checkpoint`` has under ``key`` (of
    "", the whole checkpoint), in eval mode. One process, whatever has written it;
    ``StateDictError`` lists what does not fit."""
    where = os.fspath(checkpoint)
    found = _under(tools.values(where, _present(where, key)), key)
    model = build()
    if not isinstance(model, Module):
        raise ConfigError(f"build() made {type(model).__name__}; a module is needed")
    state = _unwrapped(found, model.state_dict(), where)
    try:
        model.load_state_dict(state)
    except StateDictError as error:
        raise StateDictError(f"{where}, {key}: {error}") from None
    return model.eval()


def _present(where: str, key: str) -> list[str] | None:
    if not key:
        return None
    names = read_manifest(where).metadata.state_dict_metadata
    if not any(name == key or name.startswith(key + ".") for name in names):
        tops = ", ".join(sorted({name.split(".")[0] for name in names}))
        raise ConfigError(f"{where} has nothing under {key!r}; on top it has {tops:.300}")
    return [key]


def _under(values: Any, key: str) -> Mapping[str, Any]:
    for part in key.split(".") if key else ():
        values = values[part]
    if not isinstance(values, Mapping):
        raise ConfigError(f"{key!r} is {type(values).__name__}; a state dict is needed")
    return _flat(values)


def _flat(values: Mapping[str, Any], front: str = "") -> dict[str, Any]:
    """Names joined by dots, also of state dicts in state dicts."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        name = front + name
        out |= _flat(value, name + ".") if isinstance(value, Mapping) else {name: value}
    return out


def _unwrapped(found: Mapping[str, Any], own: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The state under the model's own names."""
    plain = {_plain(name): name for name in own}
    state: dict[str, Any] = {}
    for name, value in found.items():
        known = name if name in own else plain.get(_plain(name), name)
        if known in state:
            raise SerializationError(f"{where}: {known!r} stands there under two names")
        state[known] = value
    return state


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)
