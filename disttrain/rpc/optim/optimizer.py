"""One optimizer per worker that has parameters, driven from one worker as if it were one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from ...core import Tensor, wrap
from ...core.types import dtypes
from ...errors import ConfigError
from ...nn.utils.clip import joined_norm, type_of_norm
from ...optim import Optimizer
from ...optim.state import LOAD_POST, LOAD_PRE, SAVE_POST, SAVE_PRE
from .. import RRef, rpc_async
from ..autograd import _is_valid_context
from ..calls.current import current_agent
from ..calls.functions import run_here
from . import owner_side
from .failures import owners_failed
from .owners import Layout, changed, settings_of

_NAME = "DistributedOptimizer"


class DistributedOptimizer(Optimizer):
    """Trains parameters that lie on any workers by gradients of distributed autograd.

    ``params_rref``: ``RRef``s of parameters (of leaves), or (name, RRef) pairs, or dicts with
    ``params`` and hyperparameters of a group of their own. Each owner makes an optimizer
    ``optimizer_class(its parameters, *args, **kwargs)``; any class with ``param_groups`` and
    ``step()`` will do. ``remote_optimizers`` holds an RRef per owner, whose value has it as
    ``.optim``.

    ``param_groups`` holds the RRefs and the hyperparameters, as the owners have them. Schedulers
    change them there; each owner is told before its next step.

    Any number of these, on any workers, may have the same parameters: an owner makes one step at a
    time. What several owners raise in one call is raised together, as a group (``OwnersFailed``).
    """

    def __init__(self, optimizer_class: Any, params_rref: Iterable, *args: Any, **kwargs: Any):
        if not callable(optimizer_class):
            raise ConfigError(
                f"{_NAME}: optimizer_class={optimizer_class!r}; needed is a class, such as "
                "optim.SGD, of which each owner makes an optimizer"
            )
        self._make = (optimizer_class, args, kwargs)
        self._locals: dict[Any, Any] = {}  # owner -> reference to its optimizer
        self._known: dict[Any, list[dict[str, Any]]] = {}  # settings that each owner has
        self._layout = Layout([])
        self.defaults, self.state = {}, defaultdict(dict)
        self.param_groups, self._hooks = [], {}
        self._stepping = self.stepped = False
        for group in _groups(params_rref):
            Optimizer.add_param_group(self, dict(group))
        self._place(range(len(self.param_groups)))

    @property
    def remote_optimizers(self) -> list[Any]:
        """A reference to the optimizer of each owner."""
        return list(self._locals.values())

    def _check_param(self, p: RRef | Tensor) -> None:
        if not isinstance(p, RRef):
            raise TypeError(
                f"{_NAME}: a parameter of type {type(p).__name__} was given; needed are RRefs "
                "(RRef(p) of a parameter of this worker, RemoteModule.remote_parameters() ...)"
            )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of RRefs with hyperparameters of its own."""
        Optimizer.add_param_group(self, param_group)
        try:
            self._place([len(self.param_groups) - 1])
        except Exception:
            self.param_groups.pop()
            raise

    def _place(self, new: Iterable[int]) -> None:
        """Give the new groups to their owners; take the settings that they have there."""
        new = list(new)
        owners = [[rref.owner() for rref in group["params"]] for group in self.param_groups]
        layout = Layout(owners)
        last = Layout([owners[k] if k in new else [] for k in range(len(owners))])
        parts = {owner: last.part_of(self.param_groups, owner) for owner in last.parts}

        def place(owner: Any) -> Any:
            if owner in self._locals:
                known = (self._locals[owner], parts[owner])
                return rpc_async(owner, owner_side.local_optimizer_add, args=known)
            made, args, kwargs = self._make
            new = (made, parts[owner], args, kwargs)
            return rpc_async(owner, owner_side.new_local_optimizer, args=new)

        for owner, answer in self._together(_NAME, parts, place).items():
            settings = answer
            if owner not in self._locals:
                self._locals[owner], settings, defaults = answer
                self.defaults = {**defaults, **self.defaults}
            self._known.setdefault(owner, []).extend(settings)
            for k, own in zip(last.parts[owner], settings, strict=True):
                group = self.param_groups[k]
                group.update({n: deepcopy(v) for n, v in own.items() if n not in group})
        self._layout = layout

    def _together(
        self, what: str, owners: Iterable[Any], ask: Callable[[Any], Any], last: object = None
    ) -> dict[Any, Any]:
        """What each owner answers to what ``ask(owner)`` has asked; all at once. Waits for all of
        them, then raises what failed. ``last``: the owner to ask when all others are at work."""
        asked: dict[Any, Any] = {}
        failed: dict[str, Exception] = {}
        answers: dict[Any, Any] = {}
        owners = list(owners)
        for owner in sorted(owners, key=lambda owner: owner == last):
            try:
                asked[owner] = ask(owner)
            except Exception as error:
                failed[owner.name] = error
        for owner in owners:
            if owner not in asked:
                continue
            try:
                answers[owner] = asked[owner].wait()
            except Exception as error:
                failed[owner.name] = error
        if failed:
            raise owners_failed(what, failed, [owner.name for owner in answers])
        return answers

    def _everywhere(self, what: str, method: str, *args: float) -> dict[Any, Any]:
        """Call a method of all local optimizers."""
        return self._together(
            f"{_NAME}.{what}",
            self._locals,
            lambda owner: rpc_async(
                owner, owner_side.local_optimizer_call, args=(self._locals[owner], method, *args)
            ),
        )

    # -- steps -----------------------------------------------------------------------------------

    def step(self, context_id: int) -> None:
        """One step of every owner, at the same time, by the gradients in a context of distributed
        autograd. Parameters that have none there are not changed; ``.grad`` is not looked at.

        Raises ``OwnersFailed`` where owners fail, once all have answered: those that did not have
        made their step. This worker's own is made on the calling thread.
        """
        _check_context("step", context_id)
        changes = {owner: self._changes(owner) for owner in self._locals}

        agent = current_agent()

        def ask(owner: Any) -> Any:
            more = (changes[owner],) if changes[owner] else ()
            arguments = (self._locals[owner], context_id, *more)
            if owner.id == agent.me.id:
                return run_here(agent, owner_side.local_optimizer_step, arguments)
            return rpc_async(owner, owner_side.local_optimizer_step, args=arguments)

        try:
            self._together(f"{_NAME}.step", self._locals, ask, agent.me)
        except Exception as error:
            for owner in self._locals:
                if owner.name not in getattr(error, "failed", {}):
                    self._told(owner, changes[owner])
            raise
        for owner in self._locals:
            self._told(owner, changes[owner])

    def _changes(self, owner: object) -> dict[int, dict[str, Any]]:
        """Settings that differ from those that an owner has: number of its group -> values."""
        out = {}
        for n, k in enumerate(self._layout.parts[owner]):
            values = changed(settings_of(self.param_groups[k]), self._known[owner][n])
            if values:
                out[n] = values
        return out

    def _told(self, owner: object, changes: Mapping[int, dict[str, Any]]) -> None:
        for n, values in changes.items():
            self._known[owner][n].update(deepcopy(values))

    def _settle(self, what: str) -> None:
        """Let the owners have the settings that are here."""
        changes = {owner: self._changes(owner) for owner in self._locals}
        changes = {owner: values for owner, values in changes.items() if values}
        call = owner_side.local_optimizer_call
        self._together(
            f"{_NAME}.{what}",
            changes,
            lambda owner: rpc_async(owner, call, args=(self._locals[owner], "set", changes[owner])),
        )
        for owner, values in changes.items():
            self._told(owner, values)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop ``.grad`` of all parameters, or fill them with zeros. Gradients of distributed
        autograd are not there: they go when their context ends."""
        self._everywhere("zero_grad", "zero_grad", set_to_none)

    def clip_grad_norm_(
        self,
        context_id: int,
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
    ) -> Tensor:
        """Scale the gradients in a context so that their norm, over all parameters of all owners
        as if they were one vector, is at most ``max_norm``; gives the norm that they had.

        For between ``backward`` and ``step``. Raises ``AutogradError`` where
        ``error_if_nonfinite`` and the norm is not finite; no gradient is changed then.
        """
        _check_context("clip_grad_norm_", context_id)
        parts = self._everywhere("clip_grad_norm_", "norms", context_id, float(norm_type))
        found = {
            number: norm
            for owner, norms in parts.items()
            for number, norm in zip(self._layout.numbers(owner), norms, strict=True)
            if norm is not None
        }
        ordered = [found[number] for number in sorted(found)]
        total = joined_norm([norm for norm, _ in ordered], norm_type, error_if_nonfinite)
        kind = type_of_norm(getattr(dtypes, name).np for _, name in ordered)
        out: Any = wrap(np.asarray(total, kind))
        scale = float(max_norm) / (out.item() + 1e-6)
        if not scale >= 1.0:
            self._everywhere("clip_grad_norm_", "scale", context_id, scale)
        return out

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and groups of all owners, with parameters as numbers in the order of the groups:
        what an optimizer of one process with all parameters would return."""
        for hook in self._own_hooks(SAVE_PRE):
            hook(self)
        self._settle("state_dict")
        parts = self._together(
            f"{_NAME}.state_dict",
            self._locals,
            lambda owner: rpc_async(owner, owner_side.local_state, args=(self._locals[owner],)),
        )
        out = self._layout.whole_state(parts, self.param_groups)
        for hook in self._own_hooks(SAVE_POST):
            replaced = hook(self, out)
            out = out if replaced is None else replaced
        return out

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned, here, on a job whose parameters had other
        owners, or from an optimizer of one process; the order and the groups must be the same."""
        state_dict = state_dict.copy()
        for hook in self._own_hooks(LOAD_PRE):
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        parts = self._layout.split_state(state_dict)
        self._together(
            f"{_NAME}.load_state_dict",
            parts,
            lambda owner: rpc_async(
                owner, owner_side.load_local_state, args=(self._locals[owner], parts[owner])
            ),
        )
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update(deepcopy(settings_of(saved)))
        for owner, part in parts.items():
            for known, saved in zip(self._known[owner], part["param_groups"], strict=True):
                known.update(deepcopy(settings_of(saved)))
        for hook in self._own_hooks(LOAD_POST):
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        raise ConfigError(
            f"{_NAME}: it belongs to the worker that made it, and cannot be pickled or copied; "
            "save its state_dict()"
        )


def _groups(params_rref: Any) -> list[dict[str, Any]]:
    """What was given, as a list of groups."""
    if isinstance(params_rref, RRef):
        raise TypeError(f"{_NAME}: one RRef was given; needed is a list of them, [rref]")
    given = list(params_rref)
    if given and all(isinstance(group, dict) for group in given):
        return given
    return [{"params": given}]


def _check_context(what: str, context_id: Callable[..., Any] | int) -> None:
    if callable(context_id):
        raise TypeError(
            f"{_NAME}.{what}: a function was given; needed is the id of a context of distributed "
            "autograd. A closure cannot be evaluated on the owners: run forward and backward in "
            "the context, then call step(context_id)"
        )
    _is_valid_context(context_id)


__all__ = ["DistributedOptimizer"]
