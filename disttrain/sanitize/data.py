"""What is trained on: orders that do not change, and targets that are written to."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..core import Tensor
from ..data.sampler import DistributedSampler
from .places import Place, here
from .session import Call, Session, Walked, tensors
from .values import array_of

_CALLS = 6  # of models whose inputs are copied, to be compared
_LARGEST = 1 << 20
_overlap: Any = np.shares_memory  # (its stub knows no limit of work)


class _Passes:
    """Of a sampler."""

    def __init__(self) -> None:
        self.trained: set[int] = set()  # epochs that were trained from
        self.told = False  # an epoch was chosen since
        self.again: Place | None = None  # where one of them began once more


class Orders:
    """missing-set-epoch."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.known: weakref.WeakKeyDictionary[Any, _Passes] = weakref.WeakKeyDictionary()

    def opened(self, source: Any) -> None:
        """A loader begins: its sampler may have an order of its own."""
        for sampler in _samplers(source):
            own = type(sampler).__iter__
            code = None if hasattr(own, "__wrapped__") else getattr(own, "__code__", None)
            if code is not None and "epoch" in code.co_names:
                self.sampled(sampler)

    def sampled(self, sampler: Any) -> None:
        known = self.known.setdefault(sampler, _Passes())
        alone = not sampler.shuffle or sampler.num_replicas < 2 or getattr(sampler, "_start", 0)
        again = sampler.epoch in known.trained and not known.told and not alone
        known.again = here() if again else None

    def chosen(self, sampler: Any) -> None:
        known = self.known.get(sampler)
        if known is not None:
            known.told = True

    def before_walk(self, found: Walked) -> None:
        source = None if self.session.loader is None else self.session.loader()
        for each in [] if source is None else _samplers(source):
            known = self.known.get(each)
            if known is not None:
                self._trained(each, known)

    def _trained(self, sampler: Any, known: _Passes) -> None:
        known.trained.add(sampler.epoch)
        known.told = False
        if known.again is not None:  # (some look at a first batch before they choose an epoch)
            text = f"epoch {sampler.epoch} of {type(sampler).__name__} begins once more"
            self.session.add("missing-set-epoch", known.again, text)
            known.again = None


def _samplers(source: Any) -> list[DistributedSampler]:
    """Those of a loader that divide its data among ranks."""
    inner = getattr(getattr(source, "batch_sampler", None), "sampler", None)
    both = [getattr(source, "sampler", None), inner]
    return [s for s in both if isinstance(s, DistributedSampler)][:1]


class Labels:
    """label-leakage: memory that a model is given is written to, and is the target then."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.calls = 0
        self.values: Any = None  # of the last batch
        self.kept: list[tuple[np.ndarray, np.ndarray]] = []  # memory, and what it was

    def batch(self, value: Any) -> None:
        self.values = value if self.calls < _CALLS else None

    def enter(self, call: Call, args: tuple, kwargs: dict) -> None:
        if not call.recorded or self.calls >= _CALLS:
            self.kept = []
            return
        if next(iter(call.root.parameters()), None) is None:
            return  # a loss
        if any(isinstance(t, Tensor) and t.requires_grad for t in args):
            return  # a model on what another one gave
        self.calls += 1
        given = [*tensors(args), *tensors(list(kwargs.values())), *tensors(self.values)]
        arrays = [a for t in given if (a := array_of(t)) is not None and a.size <= _LARGEST]
        self.kept = [(a, a.copy()) for a in arrays]

    def loss(self, name: str, target: Any) -> None:
        if not self.kept or not isinstance(target, Tensor):
            return
        mine = array_of(target)
        if mine is None:
            return
        for array, before in self.kept:
            if _is_shared(array, mine) and _was_written(array, before):
                text = f"the target of {name} shares memory with an input of the model, which "
                self.session.add("label-leakage", here(), text + "was written to since")
                return

    def after_walk(self, found: Walked) -> None:
        self.kept = []


def _is_shared(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have memory in common (not only lie beside each other in one)."""
    try:
        return np.may_share_memory(a, b) and bool(_overlap(a, b, max_work=1 << 14))
    except Exception:  # too hard to say
        return False


def _was_written(array: np.ndarray, before: np.ndarray) -> bool:
    """Whether it holds other values, not only marks of what is to be ignored."""
    changed = (array != before) & ~((array != array) & (before != before))
    if not changed.any():
        return False
    values = array[changed]
    return not (array.dtype.kind in "iu" and (values == values[0]).all())


CHECKS = (Orders, Labels)
__all__ = ["CHECKS", "Labels", "Orders"]
