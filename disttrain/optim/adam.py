"""The Adam family: Adam, AdamW, NAdam, RAdam, Adamax, with PyTorch's arguments and meanings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import Tensor
from ..errors import ConfigError
from . import rules
from .algorithms import Choice
from .groups import given, take
from .optimizer import Optimizer, single


def _of_moments(group: dict[str, Any]) -> dict[str, Any]:
    """The hyperparameters that all of the family take."""
    beta1, beta2 = group["betas"]
    hyper = take(group, "lr", "eps", "weight_decay", "maximize")
    return {**hyper, "beta1": beta1, "beta2": beta2}


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015); ``amsgrad`` as in Reddi et al. 2018."""

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | Tensor = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, given(locals()))

    def check(self, values: dict[str, Any]) -> None:
        name, betas = type(self).__name__, values["betas"]
        if isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor):
            raise ConfigError(f"{name}: betas must be either both floats or both Tensors")
        if values["foreach"] and not values["capturable"]:
            for label, _ in self._tensors_among(values):
                raise ConfigError(
                    f"{name}: {label} as a Tensor is not supported for capturable=False and "
                    "foreach=True; leave foreach out, which changes nothing here"
                )
        super().check(values)

    def choose(self, group: dict[str, Any]) -> Choice:
        hyper = {**_of_moments(group), "decoupled": group["decoupled_weight_decay"]}
        names = ("exp_avg", "exp_avg_sq")
        if group["amsgrad"]:
            return rules.amsgrad, (*names, "max_exp_avg_sq", "step"), hyper
        return rules.adam, (*names, "step"), hyper


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | Tensor = 1e-2,
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


class NAdam(Optimizer):
    """Adam with Nesterov momentum (Dozat 2016)."""

    singles = ("step", "mu_product")

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, given(locals()))

    def choose(self, group: dict[str, Any]) -> Choice:
        hyper = {
            **_of_moments(group),
            "momentum_decay": group["momentum_decay"],
            "decoupled": group["decoupled_weight_decay"],
        }
        return rules.nadam, ("exp_avg", "exp_avg_sq", "mu_product", "step"), hyper

    def initial(self, name: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        return single(1.0) if name == "mu_product" else super().initial(name, p, group)


class RAdam(Optimizer):
    """Adam whose first steps wait for the variance (Liu et al. 2020)."""

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, given(locals()))

    def choose(self, group: dict[str, Any]) -> Choice:
        hyper = {**_of_moments(group), "decoupled": group["decoupled_weight_decay"]}
        return rules.radam, ("exp_avg", "exp_avg_sq", "step"), hyper


class Adamax(Optimizer):
    """Adam with the largest gradient in place of the mean square (Kingma and Ba 2015)."""

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, given(locals()))

    def choose(self, group: dict[str, Any]) -> Choice:
        return rules.adamax, ("exp_avg", "exp_inf", "step"), _of_moments(group)
