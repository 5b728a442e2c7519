"""SGD, Adam, AdamW, Adagrad, Adadelta, RMSprop, with PyTorch's arguments and meanings.

``foreach``, ``fused`` and ``capturable`` are accepted and change nothing: every step is fused, and
may be captured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core import Primitive, Tensor, wrap
from ..errors import ConfigError
from . import rules
from .optimizer import Optimizer

Plan = tuple[Primitive, tuple[str, ...], dict[str, Any]]


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Sutskever et al. 2013)."""

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ConfigError(
                f"SGD: Nesterov momentum requires a momentum and zero dampening; momentum is "
                f"{momentum}, dampening {dampening}"
            )
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def plan(self, group: dict[str, Any]) -> Plan:
        numbers = {
            "lr": float(group["lr"]),
            "weight_decay": group["weight_decay"],
            "maximize": group["maximize"],
        }
        if not group["momentum"]:
            return rules.sgd, (), numbers
        for key in ("momentum", "dampening", "nesterov"):
            numbers[key] = group[key]
        return rules.momentum, ("momentum_buffer",), numbers

    def initial(self, name: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        """Zeros; with dampening, what makes the first step take the gradient undampened."""
        zeros = super().initial(name, p, group)
        if not group["dampening"] or p.is_meta or p.grad is None:
            return zeros
        g = (-p.grad.array if group["maximize"] else p.grad.array) + group["weight_decay"] * p.array
        return wrap(np.asarray(g * (group["dampening"] / group["momentum"]), p.array.dtype))


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015); ``amsgrad`` as in Reddi et al. 2018."""

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def plan(self, group: dict[str, Any]) -> Plan:
        beta1, beta2 = group["betas"]
        numbers = {
            "lr": float(group["lr"]),
            "beta1": float(beta1),
            "beta2": float(beta2),
            "eps": group["eps"],
            "weight_decay": group["weight_decay"],
            "decoupled": group["decoupled_weight_decay"],
            "maximize": group["maximize"],
        }
        names = ("exp_avg", "exp_avg_sq")
        if group["amsgrad"]:
            return rules.amsgrad, (*names, "max_exp_avg_sq", "step"), numbers
        return rules.adam, (*names, "step"), numbers


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As ``Optimizer.load_state_dict``; also what older versions saved, without the flag."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan and Singer 2011)."""

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-2,
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
        if initial_accumulator_value < 0:
            raise ConfigError(
                f"Adagrad: Invalid initial_accumulator_value: {initial_accumulator_value}; it must "
                "be at least 0"
            )
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def plan(self, group: dict[str, Any]) -> Plan:
        return rules.adagrad, ("sum", "step"), _numbers(group, "lr_decay")

    def initial(self, name: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        value = super().initial(name, p, group)
        if name == "sum" and not p.is_meta:
            value.array[...] = group["initial_accumulator_value"]
        return value


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012)."""

    def __init__(
        self,
        params: Iterable,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def plan(self, group: dict[str, Any]) -> Plan:
        return rules.adadelta, ("square_avg", "acc_delta", "step"), _numbers(group, "rho")


class RMSprop(Optimizer):
    """RMSprop (Hinton 2012); ``centered`` as in Graves 2013."""

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-2,
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
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def plan(self, group: dict[str, Any]) -> Plan:
        centered, momentum = bool(group["centered"]), group["momentum"] > 0
        names = ["square_avg"] + ["grad_avg"] * centered + ["momentum_buffer"] * momentum
        numbers = _numbers(group, "alpha", "momentum", "centered")
        return rules.rmsprop[centered, momentum], (*names, "step"), numbers


def _numbers(group: dict[str, Any], *more: str) -> dict[str, Any]:
    """The numbers that all three take, and those named."""
    numbers = {key: group[key] for key in ("eps", "weight_decay", "maximize", *more)}
    return {"lr": float(group["lr"]), **numbers}
