"""``tf.train``: checkpoints of variables, models, optimizers and iterators, over
``disttrain.save``.

A checkpoint ``prefix`` is the one file ``prefix.index``, whole or not there; the folder's file
``checkpoint`` names them, as TensorFlow's does. With several ranks all call ``save``; the first
that gives a path writes it, with the positions of all ranks' iterators. TensorFlow's own files are
not read.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import disttrain as dt

from ...data import examples
from ...errors import DisttrainError
from .data import OwnedIterator, invalid
from .distribute import ranks
from .tensor import convert
from .variable import Variable

_STATE, _VALUE, _POSITION = "checkpoint", ".ATTRIBUTES/VARIABLE_VALUE", ".ATTRIBUTES/ITERATOR_STATE"


# --- what is kept ---------------------------------------------------------------------------------
def _kept(value: Any) -> bool:
    """Is it something whose state can be kept?"""
    if isinstance(value, (Variable, OwnedIterator, Checkpoint, dict, list, tuple)):
        return True
    return hasattr(value, "variables") or _variable(value)


def _variable(value: Any) -> bool:
    return hasattr(value, "assign") and hasattr(value, "shape")


def _walk(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Variables and iterators below ``value``, each by its path, once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, OwnedIterator) or _variable(value):
        yield path, value
        return
    for name, child in _children(value):
        if _kept(child) or (hasattr(child, "__dict__") and _module(child)):
            yield from _walk(child, f"{path}/{name}" if path else name, seen)


def _module(value: Any) -> bool:
    return any(_kept(child) for child in vars(value).values() if not isinstance(child, str))


def _children(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(str(k), v) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return [(str(i), v) for i, v in enumerate(value)]
    if type(value).__module__.startswith("keras.") or hasattr(value, "get_config"):
        return [(str(i), v) for i, v in enumerate(value.variables)]
    return list(vars(value).items())


def _write(path: str, values: dict[str, Any]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    dt.save(values, f"{path}.index")


def _state_of(value: Any) -> Any:
    return value.state_dict() if isinstance(value, OwnedIterator) else dt.tensor(_numpy(value))


def _numpy(variable: Any) -> np.ndarray:
    found = variable.numpy() if hasattr(variable, "numpy") else variable
    return np.asarray(found)


def _read(path: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = dt.load(f"{path}.index")
    except OSError as error:
        raise invalid(
            f"Error when restoring from checkpoint or SavedModel at {path}: Failed to find any "
            f"matching files for {path}", "NotFoundError"
        ) from error  # fmt: skip
    except DisttrainError as error:
        raise invalid(f"{path}: {error}", "DataLossError") from error
    return found


class Status:
    """What a restore has found."""

    def __init__(self, missing: list[str], unused: list[str]) -> None:
        self._missing, self._unused = missing, unused

    def assert_consumed(self) -> Status:
        """All of the checkpoint, and of the program, had its match."""
        if self._unused:
            raise AssertionError(f"Unresolved object in checkpoint (root).{self._unused[0]}")
        return self.assert_existing_objects_matched()

    def assert_existing_objects_matched(self) -> Status:
        """All of the program had its match."""
        if self._missing:
            raise AssertionError(
                f"Found {len(self._missing)} Python objects that were not bound to checkpointed "
                "values, likely due to changes in the Python program. Showing "
                f"{min(len(self._missing), 10)} of {len(self._missing)} unmatched objects: "
                f"{self._missing[:10]}"
            )
        return self

    assert_nontrivial_match = assert_existing_objects_matched

    def expect_partial(self) -> Status:
        """Not all needs a match."""
        return self


class Checkpoint:
    """Objects with names, to be saved and restored together."""

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            if not (_kept(value) or hasattr(value, "__dict__")):
                raise ValueError(
                    f"`Checkpoint` was expecting {name} to be a trackable object (an object "
                    f"derived from `Trackable`), got {value}. If you believe this object should be "
                    "trackable, please open an issue."
                )
        self.save_counter: Any = None
        if root is not None:
            vars(self).update(dict(_children(root)))
        vars(self).update(kwargs)

    def _counter(self) -> Any:
        if self.save_counter is None:
            self.save_counter = Variable(np.int64(0), trainable=False, name="save_counter")
        return self.save_counter

    def _found(self) -> dict[str, Any]:
        return dict(_walk(self, "", set()))

    def write(self, file_prefix: Any, options: Any = None) -> str:
        """Save under this name."""
        path, found = os.fspath(file_prefix), self._found()
        values = {k: _state_of(v) for k, v in found.items() if not isinstance(v, OwnedIterator)}
        rank, size = ranks(join=False)
        mine = {k: v.state_dict() for k, v in found.items() if isinstance(v, OwnedIterator)}
        told: list[Any] = [(path, mine)]
        if size > 1:
            told = [None] * size
            dt.distributed.all_gather_object(told, (path, mine))
        if [p for p, _ in told].index(path) == rank:
            at = {k: [states.get(k) for _, states in told] for k in mine}
            _write(path, {"values": values, "positions": at})
        if size > 1:
            dt.distributed.barrier()
        return path

    def save(self, file_prefix: Any, options: Any = None) -> str:
        """Save as ``file_prefix-N``, counting; the folder's last one is it then."""
        self._counter().assign_add(1)
        path = self.write(f"{os.fspath(file_prefix)}-{int(self.save_counter.numpy())}")
        update_checkpoint_state(os.path.dirname(path), path)
        return path

    def read(self, save_path: Any, options: Any = None) -> Status:
        """Restore what ``write`` has saved."""
        read = _read(os.fspath(save_path))
        self._build()
        found = self._found()
        missing: list[str] = []
        for name, value in found.items():
            if isinstance(value, OwnedIterator):
                _set_position(name, value, read["positions"].get(name), missing)
            elif name in read["values"]:
                value.assign(_fitting(value, read["values"][name], name))
            elif name != "save_counter":
                missing.append(name)
        unused = [k for k in {**read["values"], **read["positions"]} if k not in found]
        return Status(missing, unused)

    def _build(self) -> None:
        """Optimizers of Keras get their variables, which the checkpoint may have."""
        parts = list(vars(self).values())
        models = [p for p in parts if hasattr(p, "trainable_variables") and hasattr(p, "layers")]
        for part in parts:
            if models and hasattr(part, "apply_gradients") and not part.built:
                part.build(models[0].trainable_variables)

    def restore(self, save_path: Any, options: Any = None) -> Status:
        """Restore; None: nothing is there yet."""
        if save_path is None:
            return Status([], [])
        self._counter()
        return self.read(save_path)


def _set_position(name: str, value: OwnedIterator, states: Any, missing: list) -> None:
    if states is None:
        missing.append(name)
        return
    rank, size = ranks(join=False)
    if len(states) != size:
        raise invalid(
            f"{name}: the positions of the iterators of {len(states)} workers were saved; there "
            f"are {size} now, whose parts of the dataset are others"
        )
    value.load_state_dict(states[rank])


def _fitting(variable: Any, value: Any, name: str) -> Any:
    if tuple(variable.shape) != tuple(value.shape):
        raise ValueError(
            f"Received incompatible tensor with shape {tuple(value.shape)} when attempting to "
            f"restore variable with shape {tuple(variable.shape)} and name {name}."
        )
    return convert(value) if isinstance(variable, Variable) else value


# --- the folder -----------------------------------------------------------------------------------
class CheckpointState:
    """What the folder's file says."""

    def __init__(self, paths: list[str]) -> None:
        self.all_model_checkpoint_paths = paths
        self.model_checkpoint_path = paths[-1]


def update_checkpoint_state(
    save_dir: Any, model_checkpoint_path: Any, all_model_checkpoint_paths: Any = None
) -> None:
    """Write which checkpoints are in the folder."""
    if ranks(join=False)[0]:
        return
    paths = [str(p) for p in all_model_checkpoint_paths or [model_checkpoint_path]]
    lines = [f'model_checkpoint_path: "{os.path.relpath(paths[-1], save_dir or ".")}"']
    lines += [f'all_model_checkpoint_paths: "{os.path.relpath(p, save_dir or ".")}"' for p in paths]
    state = Path(save_dir, _STATE)
    part = state.with_name(f"{_STATE}.part-{os.getpid()}")
    part.write_text("\n".join(lines) + "\n")
    part.replace(state)


def get_checkpoint_state(checkpoint_dir: Any, latest_filename: str | None = None) -> Any:
    """What the folder's file says; None: it is not there."""
    state = Path(checkpoint_dir, latest_filename or _STATE)
    if not state.is_file():
        return None
    found = re.findall(r'^all_model_checkpoint_paths: "(.*)"$', state.read_text(), re.M)
    return CheckpointState([os.path.join(checkpoint_dir, p) for p in found]) if found else None


def latest_checkpoint(checkpoint_dir: Any, latest_filename: str | None = None) -> str | None:
    """The last checkpoint of the folder; None: there is none."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None or not os.path.exists(f"{state.model_checkpoint_path}.index"):
        return None
    return str(state.model_checkpoint_path)


def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """Names and shapes of what is in a checkpoint."""
    values = _read(latest_checkpoint(ckpt_dir_or_file) or os.fspath(ckpt_dir_or_file))["values"]
    return sorted((f"{name}/{_VALUE}", list(v.shape)) for name, v in values.items())


def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """The value of one variable, as numpy's."""
    values = _read(latest_checkpoint(ckpt_dir_or_file) or os.fspath(ckpt_dir_or_file))["values"]
    found = values.get(name.removesuffix(f"/{_VALUE}"))
    if found is None:
        raise invalid(f"Key {name} not found in checkpoint", "NotFoundError")
    return found.numpy()[()]


class CheckpointManager:
    """Keeps the last ``max_to_keep`` checkpoints of a folder."""

    def __init__(
        self, checkpoint: Checkpoint, directory: Any, max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None, checkpoint_name: str = "ckpt",
        step_counter: Any = None, checkpoint_interval: int | None = None, init_fn: Any = None,
    ) -> None:  # fmt: skip
        if max_to_keep is not None and max_to_keep < 1:
            raise ValueError(
                f"Expected a positive integer or `None` for `max_to_keep`, got {max_to_keep}."
            )
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError(
                "`step_counter` should be passed if `checkpoint_interval` is not None."
            )
        self.checkpoint, self.directory = checkpoint, os.fspath(directory)
        self._most, self._hours, self._init = max_to_keep, keep_checkpoint_every_n_hours, init_fn
        self._prefix = os.path.join(self.directory, checkpoint_name)
        self._steps, self.checkpoint_interval = step_counter, checkpoint_interval
        self._last: int | None = None
        state = get_checkpoint_state(self.directory)
        self.checkpoints: list[str] = [] if state is None else state.all_model_checkpoint_paths
        self._kept_at = time.time()

    @property
    def latest_checkpoint(self) -> str | None:
        """The last one."""
        return self.checkpoints[-1] if self.checkpoints else None

    def save(
        self, checkpoint_number: Any = None, check_interval: bool = True, options: Any = None
    ) -> str | None:
        """Save, and remove the oldest; None: ``checkpoint_interval`` has not passed."""
        if check_interval and self.checkpoint_interval is not None:
            step = int(self._steps.numpy())
            if self._last is not None and step - self._last < self.checkpoint_interval:
                return None
            self._last = step
        self.checkpoint._counter().assign_add(1)
        number = self.checkpoint.save_counter if checkpoint_number is None else checkpoint_number
        path = self.checkpoint.write(f"{self._prefix}-{int(number)}")
        self.checkpoints = [p for p in self.checkpoints if p != path] + [path]
        old = [] if self._most is None else self.checkpoints[: -self._most]
        self.checkpoints = self.checkpoints[len(old) :]
        update_checkpoint_state(self.directory, path, self.checkpoints)
        for p in old:
            self._remove(p)
        return path

    def _remove(self, path: str) -> None:
        if self._hours is not None and time.time() - self._kept_at >= self._hours * 3600:
            self._kept_at = time.time()
        elif ranks(join=False)[0] == 0:
            Path(f"{path}.index").unlink(missing_ok=True)

    def restore_or_initialize(self) -> str | None:
        """Restore the last one; or call ``init_fn``."""
        if self.latest_checkpoint is not None:
            self.checkpoint.restore(self.latest_checkpoint)
        elif self._init is not None:
            self._init()
        return self.latest_checkpoint


NAMED: dict[str, Any] = {
    **{word: getattr(examples, word) for word in (
        "BytesList", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList",
        "Int64List", "SequenceExample")},
    "Checkpoint": Checkpoint, "CheckpointManager": CheckpointManager,
    "latest_checkpoint": latest_checkpoint, "get_checkpoint_state": get_checkpoint_state,
    "update_checkpoint_state": update_checkpoint_state, "list_variables": list_variables,
    "load_variable": load_variable,
}  # fmt: skip
