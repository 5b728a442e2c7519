"""Selective checkpointing: of a part that runs again in backward, some operations' results are kept
instead of computed again. Korthikanti et al., arXiv:2205.05198.

``create_selective_checkpoint_contexts(policy)`` gives the two blocks of ``checkpoint(...,
context_fn=...)``. The first asks the policy about the result of every operation; in the second, an
operation whose result was kept gives it, and is recorded as always: what its rules read is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from enum import Enum
from functools import partial
from typing import Any

from ...context import interpreter, outside_of
from ...errors import AutogradError
from ..observers import OperationObserver
from ..tensor import Tensor


class CheckpointPolicy(Enum):
    """What becomes of the result of an operation. ``MUST`` and ``PREFER`` are alike here: nothing
    else decides."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_KEPT = {CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE}
_OFFLOADED = {CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD}
# Names by which programs know one primitive: those of the functions that are it.
_NAMES = {
    "matmul": "mm bmm matmul mv dot",
    "linear": "linear mm addmm matmul",
    "conv": "convolution conv1d conv2d conv3d",
    "attention": "scaled_dot_product_attention _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_flash_attention_for_cpu",
}
_PRODUCTS = frozenset(name for names in _NAMES.values() for name in names.split())


class Operation:
    """An operation, as a policy sees it: equal to all that have a name in common with it."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and bool(self.names & other.names)

    def __hash__(self) -> int:  # products have names in common, and so one hash
        return hash("product" if self.names & _PRODUCTS else min(self.names))

    def __repr__(self) -> str:
        return "/".join(sorted(self.names))


def operation(given: Any) -> Operation:
    """An operation by its name, or as the function or the primitive that it is."""
    if isinstance(given, Operation):
        return given
    name = given if isinstance(given, str) else getattr(given, "name", None) or given.__name__
    return Operation(*_NAMES.get(name, name).split())


class SelectiveCheckpointContext:
    """What a policy is told beside the operation and its arguments: ``op_output``."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


class _Interpreter(OperationObserver):
    """Sees every operation on plain tensors."""

    def __init__(self, kept: dict[tuple[str, int], Any], policy: Callable, mutable: bool) -> None:
        self.kept, self.policy, self.mutable = kept, policy, mutable
        self.counts: dict[str, int] = {}

    def __str__(self) -> str:
        return "selective checkpointing"

    def number(self, prim: Any) -> tuple[str, int]:
        """Which call of the primitive this is."""
        count = self.counts[prim.name] = self.counts.get(prim.name, -1) + 1
        return prim.name, count

    def process(self, prim: Any, args: tuple, params: dict, forward: Callable) -> Any:
        raise NotImplementedError


class _Keeping(_Interpreter):
    """Forward: keeps what the policy says."""

    def process(self, prim: Any, args: tuple, params: dict, forward: Callable) -> Any:
        out = forward(prim, args, params)
        if prim.mutates or prim.view:
            return out
        told = SelectiveCheckpointContext(is_recompute=False, op_output=out)
        found = self.policy(told, operation(prim), *args, **params)
        key = self.number(prim)
        if found is True or found in _KEPT:
            self.kept[key] = _each(_keep, out)
        elif found in _OFFLOADED:
            with outside_of(self):
                self.kept[key] = _each(_offload, out)
        elif found is not False and not isinstance(found, CheckpointPolicy):
            raise AutogradError(
                f"checkpoint: the policy gave {found!r} for {prim.name}; needed a CheckpointPolicy"
            )
        return out


class _Giving(_Interpreter):
    """The second run: gives what was kept."""

    def process(self, prim: Any, args: tuple, params: dict, forward: Callable) -> Any:
        if prim.mutates or prim.view:
            return forward(prim, args, params)
        key = self.number(prim)
        if key not in self.kept:
            return forward(prim, args, params)
        parts = self.kept[key]
        if parts is None:
            raise AutogradError(
                "checkpoint: Trying to backward an extra time: what a selective checkpoint has "
                "kept is given once"
            )
        self.kept[key] = None
        with outside_of(self):
            return _each(partial(_back, self.mutable), parts)


def _each(fn: Callable, value: Any) -> Any:
    return tuple(map(fn, value)) if type(value) is tuple else fn(value)


class _Row:
    """A result that was kept, where it was, and how often it had been written to."""

    def __init__(self, t: Tensor, kept: Tensor) -> None:
        self.t, self.device = kept, t.device
        self.seen, self.version = t if kept is t else None, t._version


def _keep(t: Tensor) -> _Row:
    return _Row(t, t)


def _offload(t: Tensor) -> _Row:
    return _Row(t, t if t.device.type == "cpu" else t.alias().to("cpu"))


def _back(mutable: bool, row: _Row) -> Tensor:
    if row.seen is not None and row.seen._version != row.version and not mutable:
        raise AutogradError(
            "checkpoint: Tensor cached during selective activation checkpoint has been mutated; "
            "give allow_cache_entry_mutation=True where that is meant"
        )
    return row.t.alias() if row.seen is not None else row.t.to(row.device)


class _Block(AbstractContextManager):
    """An interpreter on the stack; may be entered again, and then begins anew."""

    def __init__(self, make: Callable[[], _Interpreter]) -> None:
        self.make, self.running = make, []  # type: ignore[var-annotated]

    def __enter__(self) -> None:
        self.running.append(interpreter(self.make()))
        self.running[-1].__enter__()

    def __exit__(self, *exc: Any) -> Any:
        return self.running.pop().__exit__(*exc)


def _listed(listed: set[Operation], ctx: object, op: Operation, *args: Any, **params: Any) -> bool:
    return op in listed


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | Iterable[Any], allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager, AbstractContextManager]:
    """Two blocks for ``checkpoint``'s ``context_fn``: ``policy(ctx, op, *args, **params)`` says by
    a ``CheckpointPolicy`` what becomes of each result; or a list has the operations whose results
    are kept (functions, primitives, or their names). A kept result must not be written to before
    backward, unless ``allow_cache_entry_mutation``."""
    kept: dict[tuple[str, int], Any] = {}
    given = policy_fn_or_list
    if callable(given):
        policy: Callable[..., Any] = given
    elif isinstance(given, Iterable) and not isinstance(given, str):
        listed = {operation(op) for op in given}
        policy = partial(_listed, listed)
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    mutable = allow_cache_entry_mutation
    return (
        _Block(lambda: _Keeping(kept, policy, mutable)),
        _Block(lambda: _Giving(kept, policy, mutable)),
    )
