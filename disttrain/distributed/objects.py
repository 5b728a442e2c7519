"""Objects with names, saved and restored together: tensors, what has ``state_dict``, and iterators,
whose positions are each rank's own. With several ranks all call ``save``; the first that gives a
path writes it.

A checkpoint ``prefix-N`` is one file, whole or not there; the folder's file ``checkpoint`` names
them (``serialize.series``).
"""

from __future__ import annotations

import contextvars
import os
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ..autograd.cells import awaiting
from ..core.grad_mode import no_grad
from ..core.tensor import Tensor
from ..errors import DisttrainError, SerializationError
from ..graphs import outside
from ..serialize.api import load, save
from ..serialize.series import Series, list_anew, listed, members
from .collectives.tensors import all_gather_object, barrier
from .replicas import place

_PENDING = "objects"  # what keys begin with, of those who wait for cells
# Whether parts that came later are being restored: what is half made has none yet.
LATE: contextvars.ContextVar[bool] = contextvars.ContextVar("late", default=False)


class Listing(NamedTuple):
    """The checkpoints that the file of a folder lists, and the last of them."""

    all_model_checkpoint_paths: list[str]
    model_checkpoint_path: str


def listing(folder: Any, name: str | None = None) -> Listing | None:
    """What the file ``name`` of the folder says; None: it is not there."""
    paths = listed(folder, name or "checkpoint")
    return Listing(paths, paths[-1]) if paths else None


class Status:
    """What a restore has found: names of the program that have no match, and (``waiting``: as of
    now) of the file."""

    def __init__(
        self, missing: list[str], waiting: Callable[[], list[str]] = list, matched: bool = True
    ) -> None:
        self.missing, self._waiting, self._matched = missing, waiting, matched

    @property
    def unused(self) -> list[str]:
        """Names of the file whose objects are not there, or not yet."""
        return sorted(self._waiting())

    def assert_consumed(self) -> Status:
        """All of the checkpoint, and of the program, had its match."""
        if self.unused:
            raise AssertionError(f"Unresolved object in checkpoint (root).{self.unused[0]}")
        return self.assert_existing_objects_matched()

    def assert_existing_objects_matched(self) -> Status:
        """All of the program had its match."""
        if self.missing:
            some, count = self.missing[:10], len(self.missing)
            raise AssertionError(
                f"Found {count} Python objects that were not bound to checkpointed values, likely "
                f"due to changes in the Python program. Showing {len(some)} of {count} unmatched "
                f"objects: {some}"
            )
        return self

    def assert_nontrivial_match(self) -> Status:
        """Something of the program had its match."""
        return self if self._matched else self.assert_existing_objects_matched()

    def expect_partial(self) -> Status:
        """Not all needs a match."""
        return self


def _weakly(value: Any) -> Callable[[], Any] | None:
    """A reference that does not keep the object; None: there is none of its kind."""
    try:
        return weakref.ref(value)
    except TypeError:
        return None


class ObjectCheckpoint:
    """Objects with names. A subclass may say what else there is (``is_leaf``, ``children``), what
    is kept of it (``state``, ``put``) and how failures are told (``failed``)."""

    suffix: ClassVar[str] = ".objects"
    # (What a subclass says is asked of the class: objects may have the same names.)

    def __init__(self, root: Any = None, **objects: Any) -> None:
        for name, value in objects.items():
            if not type(self).has_state(self, value):
                raise ValueError(
                    f"`Checkpoint` was expecting {name} to be a trackable object (an object "
                    f"derived from `Trackable`), got {value}. If you believe this object should be "
                    "trackable, please open an issue."
                )
        self.save_counter: Any = None
        if root is not None:
            vars(self).update(dict(self._children(root)))
        vars(self).update(objects)

    # --- what a subclass may say otherwise ------------------------------------------------------
    def is_leaf(self, value: Any) -> bool:
        """Whether ``value`` is kept as a whole."""
        return isinstance(value, Tensor) or type(self).is_iterator(self, value) or (
            hasattr(value, "state_dict") and hasattr(value, "load_state_dict"))  # fmt: skip

    def is_iterator(self, value: Any) -> bool:
        """Whether its position is kept, of each rank."""
        return hasattr(value, "state_dict") and hasattr(value, "__next__")

    def children(self, value: Any) -> Iterable[tuple[str, Any]]:
        """The parts of an object that has none by itself, with their names."""
        return vars(value).items() if hasattr(value, "__dict__") else ()

    def held(self, value: Any) -> Any:
        """The tensor, or the array of texts, of a leaf; None: it has a ``state_dict``."""
        return value.detach() if isinstance(value, Tensor) else None

    def assign(self, value: Any, new: Any) -> None:
        """Give a leaf another tensor, or other texts, of its shape."""
        with no_grad():
            value.copy_(new)

    def state(self, value: Any) -> Any:
        """What is kept of a leaf."""
        found = type(self).held(self, value)
        if found is None:
            return value.state_dict()
        return found if isinstance(found, Tensor) else {"texts": found.tolist()}

    def put(self, value: Any, state: Any, name: str) -> None:
        """Bring a leaf into that state."""
        if type(self).held(self, value) is None:
            value.load_state_dict(state)
            return
        new = state["texts"] if isinstance(state, dict) else state
        if new is state and tuple(value.shape) != tuple(new.shape):
            raise ValueError(
                f"Received incompatible tensor with shape {tuple(new.shape)} when attempting to "
                f"restore variable with shape {tuple(value.shape)} and name {name}."
            )
        type(self).assign(self, value, new)

    def count(self, more: bool) -> int:
        """How often it was saved; ``more``: once more now."""
        self.save_counter = (self.save_counter or 0) + more
        return int(self.save_counter)

    @classmethod
    def failed(cls, kind: str, message: str) -> Exception:
        """What is raised of a file: "missing", "damaged", or another number of ranks ("ranks")."""
        return FileNotFoundError(message) if kind == "missing" else SerializationError(message)

    # --- parts ----------------------------------------------------------------------------------
    def has_state(self, value: Any) -> bool:
        """Whether there is something to keep."""
        whole = isinstance(value, (dict, list, tuple)) or hasattr(value, "__dict__")
        return whole or type(self).is_leaf(self, value)

    def _children(self, value: Any) -> list[tuple[str, Any]]:
        pairs: Iterable[tuple[Any, Any]]
        if isinstance(value, dict):
            pairs = value.items()
        else:
            row = isinstance(value, (list, tuple))
            pairs = enumerate(value) if row else type(self).children(self, value)
        return [
            (str(k), v)
            for k, v in pairs
            if type(self).has_state(self, v) and not isinstance(v, type)
        ]

    def _found(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Leaves, and iterators, by their paths."""
        found = dict(members(self, self._children, partial(type(self).is_leaf, self)))
        iterators = {k: v for k, v in found.items() if type(self).is_iterator(self, v)}
        return {k: v for k, v in found.items() if k not in iterators}, iterators

    # --- saving ---------------------------------------------------------------------------------
    def write(self, file_prefix: Any, options: Any = None) -> str:
        """Save under this name."""
        path, (leaves, iterators) = os.fspath(file_prefix), self._found()
        rank, size = place(join=False)
        mine = (path, {k: v.state_dict() for k, v in iterators.items()})
        told: list[Any] = [mine] * size
        if size > 1:
            all_gather_object(told, mine)
        if [p for p, _ in told].index(path) == rank:
            values = {k: type(self).state(self, v) for k, v in leaves.items()}
            if "save_counter" not in values and self.save_counter is not None:
                values["save_counter"] = int(self.save_counter)
            at = {k: [states.get(k) for _, states in told] for k in iterators}
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            save({"values": values, "positions": at}, path + self.suffix)
        if size > 1:
            barrier()
        return path

    def save(self, file_prefix: Any, options: Any = None) -> str:
        """Save as ``file_prefix-N``, counting; the folder's last one is it then."""
        path = self.write(f"{os.fspath(file_prefix)}-{type(self).count(self, True)}")
        if place(join=False)[0] == 0:
            list_anew(os.path.dirname(path), [path])
        return path

    # --- restoring ------------------------------------------------------------------------------
    @classmethod
    def contents(cls, path: str) -> dict[str, Any]:
        """What is in a file: "values" and "positions" by path."""
        try:
            found: dict[str, Any] = load(path + cls.suffix)
        except OSError as error:
            raise cls.failed(
                "missing",
                f"Error when restoring from checkpoint or SavedModel at {path}: Failed to find any "
                f"matching files for {path}",
            ) from error  # fmt: skip
        except DisttrainError as error:
            raise cls.failed("damaged", f"{path}: {error}") from error
        return found

    @classmethod
    def latest(cls, folder: Any, name: str | None = None) -> str | None:
        """The last checkpoint of the folder, whose file ``name`` lists them; None: there is
        none."""
        found: str | None = latest(folder, cls.suffix, name)
        return found

    @classmethod
    def values(cls, path: Any) -> dict[str, Any]:
        """The values in a checkpoint, or in the last one of a folder, by path."""
        found: dict[str, Any] = cls.contents(cls.latest(path) or os.fspath(path))["values"]
        return found

    @classmethod
    def shapes(cls, path: Any) -> list[tuple[str, list[int]]]:
        """The names of the values, in order, and their shapes."""
        return sorted((n, list(getattr(v, "shape", ()))) for n, v in cls.values(path).items())

    @classmethod
    def value(cls, path: Any, name: str) -> Any:
        """The value of one name."""
        found = cls.values(path).get(name)
        if found is None:
            raise cls.failed("missing", f"Key {name} not found in checkpoint")
        return found

    def read(self, save_path: Any, options: Any = None) -> Status:
        """Restore what ``write`` has saved. What is made later is restored when it is there."""
        read = self.contents(os.fspath(save_path))
        kept, positions = read["values"], read["positions"]
        waiting: dict[str, Any] = dict.fromkeys(positions) | kept
        leaves, iterators = self._settle(waiting)
        if "save_counter" not in leaves:
            self.save_counter = waiting.pop("save_counter", self.save_counter)
        for name in iterators.keys() & positions.keys():
            self._go_to(name, iterators[name], positions[name])
            del waiting[name]
        missing = sorted({*leaves, *iterators} - {*kept, *positions, "save_counter"})
        late = {name: waiting[name] for name in waiting.keys() & kept.keys()}
        self._await(late)
        matched = bool(({*leaves, *iterators} - {"save_counter"}).difference(missing))
        return Status(missing, lambda: [*late, *(n for n in waiting if n not in kept)], matched)

    def _settle(self, waiting: dict[str, Any]) -> tuple[dict, dict]:
        """Put what waits into the objects that are there."""
        with outside():
            leaves, iterators = self._found()
            for name in leaves:
                if name in waiting:  # (what is put may call for others)
                    type(self).put(self, leaves[name], waiting.pop(name), name)
        return leaves, iterators

    def _await(self, waiting: dict[str, Any]) -> None:
        """Let what waits be put in place when cells come, for as long as the objects are there."""
        parts = {k: _weakly(v) for k, v in vars(self).items()}
        key = _PENDING, *(id(v) for k, v in vars(self).items() if k != "save_counter")
        kind = type(self)

        def settle() -> bool:
            there = {k: ref() for k, ref in parts.items() if ref is not None}
            if not waiting or all(v is None for k, v in there.items() if k != "save_counter"):
                return True
            other = object.__new__(kind)
            vars(other).update({"save_counter": None} | there)
            token = LATE.set(True)
            try:
                other._settle(waiting)
            finally:
                LATE.reset(token)
            return not waiting

        awaiting().pop(key, None)
        if not settle():
            awaiting()[key] = settle

    def _go_to(self, name: str, iterator: Any, states: list) -> None:
        rank, size = place(join=False)
        if len(states) != size:
            raise type(self).failed(
                "ranks", f"{name}: the positions of the iterators of {len(states)} workers were "
                f"saved; there are {size} now, whose parts of the dataset are others"
            )  # fmt: skip
        iterator.load_state_dict(states[rank])

    def restore(self, save_path: Any, options: Any = None) -> Status:
        """Restore; None: nothing is there yet."""
        if save_path is None:
            return Status([])
        type(self).count(self, False)
        return self.read(save_path)


class CheckpointManager:
    """Keeps the last ``max_to_keep`` checkpoints of a folder (None: all)."""

    def __init__(
        self, checkpoint: ObjectCheckpoint, directory: Any, max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None, checkpoint_name: str = "ckpt",
        step_counter: Any = None, checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None,
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
        self._series = Series(
            self.directory, max_to_keep, keep_checkpoint_every_n_hours, checkpoint.suffix
        )

    @property
    def checkpoints(self) -> list[str]:
        """All paths, the last one last."""
        return self._series.paths

    @property
    def latest_checkpoint(self) -> str | None:
        """The last one."""
        return self.checkpoints[-1] if self.checkpoints else None

    def save(
        self, checkpoint_number: Any = None, check_interval: bool = True, options: Any = None
    ) -> str | None:
        """Save, and remove the oldest; None: ``checkpoint_interval`` has not passed."""
        if check_interval and self.checkpoint_interval is not None:
            step = int(self._steps)
            if self._last is not None and step - self._last < self.checkpoint_interval:
                return None
            self._last = step
        count = self.checkpoint.count(True)
        number = count if checkpoint_number is None else int(checkpoint_number)
        path = self.checkpoint.write(f"{self._prefix}-{number}")
        self._series.add(path, place(join=False)[0] == 0)
        return path

    def restore_or_initialize(self) -> str | None:
        """Restore the last one; or call ``init_fn``."""
        if self.latest_checkpoint is not None:
            self.checkpoint.restore(self.latest_checkpoint)
        elif self._init is not None:
            self._init()
        return self.latest_checkpoint


def latest(folder: Any, suffix: str = ObjectCheckpoint.suffix, name: str | None = None) -> Any:
    """The last checkpoint of the folder; None: there is none."""
    paths = listed(folder, name or "checkpoint")
    return paths[-1] if paths and os.path.exists(paths[-1] + suffix) else None
