"""``tf.train``: checkpoints of variables, models, optimizers and iterators, over
``disttrain.save``.

A checkpoint ``prefix`` is the one file ``prefix.index``, whole or not there; the folder's file
``checkpoint`` names them, as TensorFlow's does. With several ranks all call ``save``; the first
that gives a path writes it, with the positions of all ranks' iterators. TensorFlow's own files are
not read.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import disttrain as dt

from ...data import examples
from ...data.pipeline.elements import as_leaf
from ...distributed.replicas import ranks
from ...errors import DisttrainError
from ...serialize.series import Series, list_anew, listed, members
from .data import OwnedIterator, invalid
from .tensor import convert
from .variable import Variable

_FILE, _VALUE = ".index", ".ATTRIBUTES/VARIABLE_VALUE"


# --- what is kept ---------------------------------------------------------------------------------
def _variable(value: Any) -> bool:
    return hasattr(value, "assign") and hasattr(value, "shape")


def _leaf(value: Any) -> bool:
    return isinstance(value, OwnedIterator) or _variable(value)


def _kept(value: Any) -> bool:
    """Is it something whose state can be kept?"""
    return _leaf(value) or isinstance(value, (dict, list, tuple)) or hasattr(value, "__dict__")


def _children(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        found = [(str(k), v) for k, v in value.items()]
    elif isinstance(value, (list, tuple)) or hasattr(value, "get_config"):  # or a part of Keras
        parts = value if isinstance(value, (list, tuple)) else value.variables
        found = [(str(i), v) for i, v in enumerate(parts)]
    else:
        found = list(getattr(value, "__dict__", {}).items())
    return [(name, child) for name, child in found if _kept(child) and not isinstance(child, type)]


def _state_of(variable: Any) -> Any:
    array = as_leaf(variable.numpy())
    return dt.tensor(array) if array.dtype != object else {"texts": array.tolist()}


def _put(variable: Any, value: Any, name: str) -> None:
    if isinstance(value, dict):
        variable.assign(value["texts"])
        return
    if tuple(variable.shape) != tuple(value.shape):
        raise ValueError(
            f"Received incompatible tensor with shape {tuple(value.shape)} when attempting to "
            f"restore variable with shape {tuple(variable.shape)} and name {name}."
        )
    variable.assign(convert(value) if isinstance(variable, Variable) else value)


def _read(path: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = dt.load(path + _FILE)
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
            if not _kept(value):
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

    def _found(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Variables, and iterators, by their paths."""
        found = dict(members(self, _children, _leaf))
        iterators = {k: v for k, v in found.items() if isinstance(v, OwnedIterator)}
        return {k: v for k, v in found.items() if k not in iterators}, iterators

    def write(self, file_prefix: Any, options: Any = None) -> str:
        """Save under this name."""
        path, (variables, iterators) = os.fspath(file_prefix), self._found()
        rank, size = ranks(join=False)
        mine = (path, {k: v.state_dict() for k, v in iterators.items()})
        told: list[Any] = [mine] * size
        if size > 1:
            dt.distributed.all_gather_object(told, mine)
        if [p for p, _ in told].index(path) == rank:
            values = {k: _state_of(v) for k, v in variables.items()}
            at = {k: [states.get(k) for _, states in told] for k in iterators}
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            dt.save({"values": values, "positions": at}, path + _FILE)
        if size > 1:
            dt.distributed.barrier()
        return path

    def save(self, file_prefix: Any, options: Any = None) -> str:
        """Save as ``file_prefix-N``, counting; the folder's last one is it then."""
        self._counter().assign_add(1)
        path = self.write(f"{os.fspath(file_prefix)}-{int(self.save_counter.numpy())}")
        if ranks(join=False)[0] == 0:
            list_anew(os.path.dirname(path), [path])
        return path

    def read(self, save_path: Any, options: Any = None) -> Status:
        """Restore what ``write`` has saved."""
        read = _read(os.fspath(save_path))
        self._build()
        variables, iterators = self._found()
        kept, positions = read["values"], read["positions"]
        for name in variables.keys() & kept.keys():
            _put(variables[name], kept[name], name)
        for name in iterators.keys() & positions.keys():
            _set_position(name, iterators[name], positions[name])
        there = {*variables, *iterators}
        missing = sorted(there - {*kept, *positions, "save_counter"})
        return Status(missing, sorted({*kept, *positions} - there))

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


def _set_position(name: str, iterator: OwnedIterator, states: list) -> None:
    rank, size = ranks(join=False)
    if len(states) != size:
        raise invalid(
            f"{name}: the positions of the iterators of {len(states)} workers were saved; there "
            f"are {size} now, whose parts of the dataset are others"
        )
    iterator.load_state_dict(states[rank])


# --- the folder -----------------------------------------------------------------------------------
def latest_checkpoint(checkpoint_dir: Any, latest_filename: str | None = None) -> str | None:
    """The last checkpoint of the folder; None: there is none."""
    paths = listed(checkpoint_dir, latest_filename or "checkpoint")
    return paths[-1] if paths and os.path.exists(paths[-1] + _FILE) else None


def get_checkpoint_state(checkpoint_dir: Any, latest_filename: str | None = None) -> Any:
    """What the folder's file says; None: it is not there."""
    paths = listed(checkpoint_dir, latest_filename or "checkpoint")
    found = SimpleNamespace(all_model_checkpoint_paths=paths, model_checkpoint_path=paths[-1:])
    found.model_checkpoint_path = paths[-1] if paths else None
    return found if paths else None


def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """Names and shapes of what is in a checkpoint."""
    values = _read(latest_checkpoint(ckpt_dir_or_file) or os.fspath(ckpt_dir_or_file))["values"]
    return sorted((f"{name}/{_VALUE}", list(getattr(v, "shape", ()))) for name, v in values.items())


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
        self.checkpoint, self.directory, self._init = checkpoint, os.fspath(directory), init_fn
        self._prefix = os.path.join(self.directory, checkpoint_name)
        self._steps, self.checkpoint_interval = step_counter, checkpoint_interval
        self._last: int | None = None
        self._series = Series(self.directory, max_to_keep, keep_checkpoint_every_n_hours, _FILE)

    checkpoints = property(lambda self: self._series.paths)
    latest_checkpoint = property(lambda self: self.checkpoints[-1] if self.checkpoints else None)

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
        self._series.add(path, ranks(join=False)[0] == 0)
        return path

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
    "list_variables": list_variables,
    "load_variable": load_variable,
}  # fmt: skip
