"""SparseAdam, for tables of which a step touches few rows; and what SGD and Adagrad do then."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..backends.device.array import DeviceArray
from ..core import Tensor
from ..core.gate import touched
from ..errors import ConfigError, DTypeError
from ..ops.functions.sparse.structured import Structured
from .groups import given, take
from .optimizer import Optimizer


def places_and_values(grad: Any, maximize: bool) -> tuple[tuple, Any]:
    """Where a sparse gradient is not zero, as an index into ``cells``, and what it is there."""
    one = grad.coalesce()
    values = cells(one._values())
    return tuple(cells(one._indices())), -values if maximize else values


def cells(t: Any) -> Any:
    """What can be read and written by index and is computed with: the array of a tensor of the
    host's; of a device's, the tensor itself."""
    return t.detach() if isinstance(t.array, DeviceArray) else t.array


def _root(x: Tensor | np.ndarray) -> Any:
    return np.sqrt(x) if isinstance(x, np.ndarray) else x.sqrt()


def _take_off(p: Tensor, at: tuple, change: Any) -> None:
    """``p[at] -= change``, in the type of ``p``."""
    here = cells(p)
    if isinstance(here, np.ndarray):
        here[at] -= change.astype(here.dtype)
    else:
        here[at] = here[at] - change.to(here.dtype)
    touched(p)


def _empty(g: Tensor | np.ndarray) -> bool:
    return not (g.size if isinstance(g, np.ndarray) else g.numel())


class SparseAdam(Optimizer):
    """Adam that changes parameters and moments only where the (sparse) gradient has values."""

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, given(locals()))
        wrong: dict[str, list] = {"sparse": [], "complex": []}
        for k, group in enumerate(self.param_groups):
            for i, p in enumerate(group["params"]):
                wrong["sparse"] += [[k, i]] * p.is_sparse
                wrong["complex"] += [[k, i]] * (p.meta()[1].kind == "c")
        if wrong["sparse"]:
            raise ConfigError(
                f"Sparse params at indices {wrong['sparse']}: SparseAdam requires dense parameter "
                "tensors"
            )
        if wrong["complex"]:
            raise ConfigError(
                f"Complex params at indices {wrong['complex']}: SparseAdam does not support "
                "complex parameters"
            )

    def check(self, values: dict[str, Any]) -> None:
        super().check(values)
        for key, label in (("lr", "learning rate"), ("eps", "epsilon value")):
            if not values[key] > 0:
                raise ConfigError(f"SparseAdam: Invalid {label}: {values[key]}; it must be above 0")

    def _update(self, group: dict[str, Any]) -> None:
        for p in group["params"]:
            if p.grad is None:
                continue
            if not p.grad.is_sparse:
                raise DTypeError(
                    "SparseAdam does not support dense gradients, please consider Adam instead"
                )
            self._update_sparse(p, p.grad, group)

    def _update_sparse(self, p: Tensor, grad: object, group: dict[str, Any]) -> None:
        state = self.state[p]
        state["step"] = t = int(state.get("step", 0)) + 1
        for name in ("exp_avg", "exp_avg_sq"):
            if name not in state:
                state[name] = self.initial(name, p, group)
        at, g = places_and_values(grad, group["maximize"])
        if _empty(g):
            return
        beta1, beta2 = (float(b) for b in group["betas"])
        mean, square = cells(state["exp_avg"]), cells(state["exp_avg_sq"])
        m = mean[at] = mean[at] + (g - mean[at]) * (1 - beta1)
        v = square[at] = square[at] + (g * g - square[at]) * (1 - beta2)
        size = float(group["lr"]) * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        _take_off(p, at, size * (m / (_root(v) + group["eps"])))


def sgd(p: Tensor, grad: object, group: dict[str, Any]) -> None:
    """A step of SGD without momentum and decay, where the gradient has values."""
    if isinstance(p, Structured):
        gradient: Any = grad
        rate: Any = float(group["lr"])
        p.add_(gradient, alpha=rate if group["maximize"] else -rate)
        return
    at, g = places_and_values(grad, group["maximize"])
    _take_off(p, at, float(group["lr"]) * g)


def adagrad(p: Tensor, total: object, step: Any, grad: object, group: dict[str, Any]) -> None:
    """A step of Adagrad where the gradient has values."""
    if group["weight_decay"] != 0:
        raise DTypeError(
            "Adagrad: weight_decay option is not compatible with sparse gradients; give 0"
        )
    step.array[...] += 1
    numbers = take(group, "lr", "lr_decay", "eps")
    rate = float(numbers["lr"]) / (1 + (float(step.array) - 1) * numbers["lr_decay"])
    at, g = places_and_values(grad, group["maximize"])
    sums = cells(total)
    sums[at] = sums[at] + g * g
    _take_off(p, at, rate * (g / (_root(sums[at]) + numbers["eps"])))
