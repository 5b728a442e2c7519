"""``tf.train``: checkpoints of variables, models, optimizers and iterators, over
``disttrain.distributed.objects``. A checkpoint ``prefix`` is the one file ``prefix.index``;
TensorFlow's own files are not read."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np

import disttrain as dt

from ...data import examples
from ...data.pipeline.elements import as_leaf
from ...distributed.objects import LATE, CheckpointManager, ObjectCheckpoint, latest
from ...serialize.series import listed
from .data import OwnedIterator, invalid
from .tensor import convert
from .variable import Variable

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_ERRORS = {"missing": "NotFoundError", "damaged": "DataLossError", "ranks": "InvalidArgumentError"}


class Checkpoint(ObjectCheckpoint):
    """Objects with names, to be saved and restored together."""

    suffix = ".index"

    def is_iterator(self, value: Any) -> bool:
        return isinstance(value, OwnedIterator)

    def is_leaf(self, value: Any) -> bool:
        return self.is_iterator(value) or (hasattr(value, "assign") and hasattr(value, "shape"))

    def children(self, value: Any) -> Any:
        if not hasattr(value, "get_config"):
            return super().children(value)
        return (
            () if LATE.get() and not getattr(value, "built", True) else enumerate(value.variables)
        )

    def state(self, value: Any) -> Any:
        array = as_leaf(value.numpy())
        return dt.tensor(array) if array.dtype != object else {"texts": array.tolist()}

    def put(self, value: Any, state: Any, name: str) -> None:
        if isinstance(state, dict):
            value.assign(state["texts"])
            return
        if tuple(value.shape) != tuple(state.shape):
            raise ValueError(
                f"Received incompatible tensor with shape {tuple(state.shape)} when attempting to "
                f"restore variable with shape {tuple(value.shape)} and name {name}."
            )
        value.assign(convert(state) if isinstance(value, Variable) else state)

    def count(self, more: bool) -> int:
        if self.save_counter is None:
            self.save_counter = Variable(np.int64(0), trainable=False, name="save_counter")
        self.save_counter.assign_add(int(more))
        return int(self.save_counter.numpy())

    @classmethod
    def failed(cls, kind: str, message: str) -> Exception:
        return invalid(message, _ERRORS[kind])

    def prepare(self) -> None:
        """Optimizers of Keras get their variables, which the checkpoint may have."""
        parts = list(vars(self).values())
        models = [p for p in parts if hasattr(p, "trainable_variables") and hasattr(p, "layers")]
        for part in parts:
            if models and hasattr(part, "apply_gradients") and not part.built:
                part.build(models[0].trainable_variables)


def latest_checkpoint(checkpoint_dir: Any, latest_filename: str | None = None) -> str | None:
    """The last checkpoint of the folder; None: there is none."""
    found: str | None = latest(checkpoint_dir, Checkpoint.suffix, latest_filename)
    return found


def get_checkpoint_state(checkpoint_dir: Any, latest_filename: str | None = None) -> Any:
    """What the folder's file says; None: it is not there."""
    paths = listed(checkpoint_dir, latest_filename or "checkpoint")
    last = paths[-1] if paths else None
    found = SimpleNamespace(all_model_checkpoint_paths=paths, model_checkpoint_path=last)
    return found if paths else None


def _values(path: Any) -> dict[str, Any]:
    found: dict[str, Any] = Checkpoint.contents(latest_checkpoint(path) or os.fspath(path))
    return found["values"]


def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """Names and shapes of what is in a checkpoint."""
    values = _values(ckpt_dir_or_file).items()
    return sorted((f"{name}{_VALUE}", list(getattr(v, "shape", ()))) for name, v in values)


def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """The value of one variable, as numpy's."""
    found = _values(ckpt_dir_or_file).get(name.removesuffix(_VALUE))
    if found is None:
        raise invalid(f"Key {name} not found in checkpoint", "NotFoundError")
    return found.numpy()[()]


NAMED: dict[str, Any] = {
    **{word: getattr(examples, word) for word in (
        "BytesList", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList",
        "Int64List", "SequenceExample")},
    **{f.__name__: f for f in (Checkpoint, CheckpointManager, latest_checkpoint,
                               get_checkpoint_state, list_variables, load_variable)},
}  # fmt: skip
