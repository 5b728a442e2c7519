"""What runs on the worker that has parameters: its optimizer, fed from distributed autograd.

Called by the worker that has the ``DistributedOptimizer``. Knows nothing of other owners.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ...core import Tensor, no_grad
from ...nn.utils.clip import norm_of
from .. import RRef
from ..autograd import get_gradients
from ..calls.locks import one_at_a_time
from .owners import plain, settings_of

_LOCK = "rpc.optim.owner_side"


def _in_turn() -> AbstractContextManager[None]:
    """For one thread of this worker at a time: optimizers of several trainers have the same
    parameters."""
    return one_at_a_time(_LOCK, "another step of an optimizer on this worker")


class LocalOptimizer:
    """The optimizer of one owner: ``optim``, of the class that was given."""

    def __init__(
        self, optimizer_class: Any, groups: Sequence[dict[str, Any]], args: Any, kwargs: Any
    ) -> None:
        self._params: list[Tensor] = []
        given = [self._local(group) for group in groups]
        plain = len(given) == 1 and set(given[0]) == {"params"}
        self.optim = optimizer_class(given[0]["params"] if plain else given, *args, **kwargs)

    def _local(self, group: dict[str, Any]) -> dict[str, Any]:
        """A group with the parameters themselves in the place of references to them."""
        params = [rref.local_value() for rref in group["params"]]
        self._params += params
        rest = {n: v for n, v in group.items() if n not in ("params", "param_names")}
        names = group.get("param_names")
        return {"params": params if names is None else list(zip(names, params)), **rest}

    def add(self, groups: Sequence[dict[str, Any]]) -> None:
        """Further groups."""
        for group in groups:
            self.optim.add_param_group(self._local(group))

    def settings(self) -> list[dict[str, Any]]:
        """The hyperparameters of each group."""
        return [plain(settings_of(group), (Tensor,)) for group in self.optim.param_groups]

    def set(self, changes: Mapping[int, dict[str, Any]]) -> None:
        """Change hyperparameters: number of a group -> new values."""
        for k, values in changes.items():
            self.optim.param_groups[k].update(values)

    def gradients(self, context_id: int) -> list[Tensor | None]:
        """The gradient of each parameter in a context."""
        found = get_gradients(context_id)
        return [found.get(p) for p in self._params]

    def step(self, context_id: int, changes: Mapping[int, dict[str, Any]]) -> None:
        """One step by the gradients of a context; ``.grad`` of the parameters is as before."""
        with _in_turn():
            self.set(changes)
            grads = self.gradients(context_id)
            own = [p._grad for p in self._params]
            try:
                for p, grad in zip(self._params, grads, strict=True):
                    p._grad = grad
                self.optim.step()
            finally:
                for p, grad in zip(self._params, own, strict=True):
                    p._grad = grad

    def norms(self, context_id: int, norm_type: float) -> list[tuple[float, str] | None]:
        """The norm of each parameter's gradient in a context, and the name of its type."""
        return [
            None if g is None else (norm_of(g, norm_type), g.dtype.name)
            for g in self.gradients(context_id)
        ]

    def scale(self, context_id: int, factor: float) -> None:
        """Multiply the gradients in a context, in place."""
        found: dict[int, Any] = {id(g): g for g in self.gradients(context_id) if g is not None}
        with no_grad():
            for g in found.values():
                g.mul_(factor)

    def zero_grad(self, set_to_none: bool) -> None:
        """Drop the parameters' own gradients, or fill them with zeros."""
        self.optim.zero_grad(set_to_none=set_to_none)


# What is called by name from other workers, with a reference to the optimizer.


def new_local_optimizer(
    optimizer_class: type, groups: Sequence[dict[str, Any]], args: tuple, kwargs: dict
) -> tuple[Any, list[dict[str, Any]], dict[str, Any]]:
    """A new one: a reference to it, its settings group by group, its defaults."""
    local = LocalOptimizer(optimizer_class, groups, args, kwargs)
    defaults = plain(getattr(local.optim, "defaults", {}), (Tensor,))
    return RRef(local), local.settings(), defaults


def local_optimizer_step(
    local: RRef, context_id: int, changes: Mapping[int, dict[str, Any]] | None = None
) -> None:
    """One step of what ``local`` refers to."""
    local.local_value().step(context_id, changes or {})


def local_optimizer_call(local: RRef, method: str, *args: object) -> Any:
    """Any of its other methods."""
    return getattr(local.local_value(), method)(*args)


def local_optimizer_add(local: RRef, groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add groups; their settings."""
    value = local.local_value()
    value.add(groups)
    return value.settings()[-len(groups) :]


def local_state(local: RRef) -> dict[str, Any]:
    """Its state dict."""
    with _in_turn():
        return local.local_value().optim.state_dict()


def load_local_state(local: RRef, state: dict[str, Any]) -> None:
    """Load a state dict."""
    with _in_turn():
        local.local_value().optim.load_state_dict(state)
