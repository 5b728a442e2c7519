"""Exponential families: what follows from natural parameters and the log-normalizer.

A density h(x) exp(<t(x), θ> - A(θ)) has its mean sufficient statistics as A's gradient, so that
entropies and divergences need A alone (Nielsen and Nock, Entropies and cross-entropies of
exponential families, 2010).
"""

from __future__ import annotations

from typing import Any

from ..core import grad
from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor
from .distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A subclass gives ``_natural_params`` (a tuple of tensors), ``_log_normalizer(*params)``, and
    ``_mean_carrier_measure``, the mean of log h; each of them batched."""

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__}._natural_params")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}._log_normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__}._mean_carrier_measure")

    def entropy(self) -> Tensor:
        params, log_norm, means = statistics(self)
        result = log_norm - self._mean_carrier_measure
        for param, mean in zip(params, means, strict=True):
            result = result - (param * mean).reshape(*self._batch_shape, -1).sum(-1)
        return result


def statistics(of: ExponentialFamily) -> tuple[list[Tensor], Tensor, tuple[Tensor, ...]]:
    """Natural parameters cut from the graph, the log-normalizer, and its gradients by them."""
    with enable_grad():
        params = [p.detach().requires_grad_() for p in of._natural_params]
        log_norm = of._log_normalizer(*params)
        return params, log_norm, grad(log_norm.sum(), params, create_graph=True)
