"""SGD, Adagrad, Adadelta, RMSprop, Rprop, ASGD, with PyTorch's arguments and meanings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..backends.device.array import DeviceArray
from ..core import Primitive, Tensor, wrap
from ..errors import ConfigError
from . import rules, sparse_adam
from .groups import given, take
from .optimizer import Optimizer, single

Choice = tuple[Primitive, tuple[str, ...], dict[str, Any]]


def _full(zeros: Tensor, number: float) -> Tensor:
    """A new state with a number everywhere; sharded where ``zeros`` is."""
    array: Any = zeros.array
    value = complex(number, number) if array.dtype.kind == "c" else number
    if isinstance(array, DeviceArray):
        array.fill(value)
        return zeros
    if not isinstance(array, np.ndarray):
        return wrap(array.filled(value))
    array[...] = value
    return zeros


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Sutskever et al. 2013)."""

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, given(locals()))

    def check(self, values: dict[str, Any]) -> None:
        super().check(values)
        if values["nesterov"] and (values["momentum"] <= 0 or values["dampening"] != 0):
            raise ConfigError(
                "SGD: Nesterov momentum requires a momentum and zero dampening; momentum is "
                f"{values['momentum']}, dampening {values['dampening']}"
            )

    def choose(self, group: dict[str, Any]) -> Choice:
        hyper = take(group, "lr", "weight_decay", "maximize")
        if not group["momentum"]:
            return rules.sgd, (), hyper
        hyper |= take(group, "momentum", "dampening")
        return rules.nesterov if group["nesterov"] else rules.momentum, ("momentum_buffer",), hyper

    def initial(self, name: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        """Zeros; with dampening, what makes the first step take the gradient undampened."""
        zeros = super().initial(name, p, group)
        if not group["dampening"] or p.is_meta or p.grad is None:
            return zeros
        share = group["dampening"] / group["momentum"]
        if group["differentiable"] or not isinstance(p.array, np.ndarray):  # or it is sharded
            given: Any = p.grad
            given = -given if group["maximize"] else given
            return (given + group["weight_decay"] * p) * share
        g = -p.grad.array if group["maximize"] else p.grad.array
        g = (g + float(group["weight_decay"]) * p.array) * share
        return wrap(np.asarray(g, p.array.dtype))

    def _update_sparse(self, p: Tensor, grad: Any, group: dict[str, Any]) -> None:
        if group["momentum"] or group["weight_decay"]:
            self._update_one(p, grad.to_dense(), group)
        else:
            sparse_adam.sgd(p, grad, group)


class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan and Singer 2011)."""

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, given(locals()))
        for group in self.param_groups:  # before any step, so that processes can share it
            for p in group["params"]:
                if p.numel() >= 0 and not p.is_meta:  # (asked for its shape, a lazy one refuses)
                    self._state_of(p, ("sum", "step"), group)

    def share_memory(self) -> None:
        """Put the state into memory that child processes share."""
        for group in self.param_groups:
            for p in group["params"]:
                total: Any = self._state_of(p, ("sum", "step"), group)[0]
                total.share_memory_()

    def choose(self, group: dict[str, Any]) -> Choice:
        hyper = take(group, "lr", "lr_decay", "eps", "weight_decay", "maximize")
        return rules.adagrad, ("sum", "step"), hyper

    def initial(self, name: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        value = super().initial(name, p, group)
        if name == "sum" and not p.is_meta:
            start = group["initial_accumulator_value"]
            return _full(value, start)
        return value

    def _update_sparse(self, p: Tensor, grad: object, group: dict[str, Any]) -> None:
        total, step = self._state_of(p, ("sum", "step"), group)
        sparse_adam.adagrad(p, total, step, grad, group)


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012)."""

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, given(locals()))

    def choose(self, group: dict[str, Any]) -> Choice:
        hyper = take(group, "lr", "rho", "eps", "weight_decay", "maximize")
        return rules.adadelta, ("square_avg", "acc_delta", "step"), hyper


class RMSprop(Optimizer):
    """RMSprop (Hinton 2012); ``centered`` as in Graves 2013."""

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, given(locals()))

    def choose(self, group: dict[str, Any]) -> Choice:
        centered, momentum = bool(group["centered"]), group["momentum"] > 0
        names = ["square_avg"] + ["grad_avg"] * centered + ["momentum_buffer"] * momentum
        hyper = take(group, "lr", "alpha", "eps", "weight_decay", "maximize")
        if momentum:
            hyper["momentum"] = group["momentum"]
        return rules.rmsprop[centered, momentum], (*names, "step"), hyper


class Rprop(Optimizer):
    """Resilient backpropagation (Riedmiller and Braun 1993): only signs of gradients count."""

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, given(locals()))

    def check(self, values: dict[str, Any]) -> None:
        super().check(values)
        low, high = values["etas"]
        if not 0.0 < low < 1.0 < high:
            raise ConfigError(
                f"Rprop: Invalid eta values: {low}, {high}; needed 0 < the first < 1 < the second"
            )

    def choose(self, group: dict[str, Any]) -> Choice:
        (low, high), (smallest, largest) = group["etas"], group["step_sizes"]
        hyper = {"eta_minus": low, "eta_plus": high, "smallest": smallest, "largest": largest}
        return rules.rprop, ("prev", "step_size", "step"), hyper | take(group, "maximize")

    def initial(self, name: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        value = super().initial(name, p, group)
        if name == "step_size" and not p.is_meta:
            return _full(value, float(group["lr"]))
        return value


class ASGD(Optimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992); the average is in the
    state, as ``ax``."""

    singles = ("step", "eta", "mu")

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, given(locals()))

    def choose(self, group: dict[str, Any]) -> Choice:
        hyper = take(group, "lr", "lambd", "alpha", "t0", "weight_decay", "maximize")
        return rules.asgd, ("ax", "eta", "mu", "step"), hyper

    def initial(self, name: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        if name == "eta":
            return single(float(group["lr"]))
        return single(1.0) if name == "mu" else super().initial(name, p, group)
