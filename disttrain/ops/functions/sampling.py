"""Draws from distributions of their arguments, beside those of ``random.py``."""

from __future__ import annotations

from ...core.gate import gate
from ...core.random import Generator
from ...core.tensor import Tensor
from ...errors import DTypeError
from ..primitives.sampling import draw_binomial, draw_dirichlet, draw_gamma, draw_von_mises
from ..promotion import same_type
from .args import tensor as as_input
from .random import source_of


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of ``count`` trials succeed, each with the probability ``prob``."""
    for name, given in (("count", count), ("prob", prob)):
        if not as_input(given, "binomial", name).dtype.is_floating_point:
            raise DTypeError(f"binomial: {name} of {given.dtype!r} given; needed a floating type")
    same_type("binomial", count, prob)
    source = source_of(generator, count.device)
    return gate(draw_binomial, (count.detach(), prob.detach()), {"generator": source})


def standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma numbers of the shapes that ``input`` says, which get gradients."""
    return gate(draw_gamma, (input,), {"generator": source_of(generator, input.device)})


def standard_dirichlet(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Points of simplices, of the concentrations in the last dimension, which get gradients."""
    return gate(draw_dirichlet, (input,), {"generator": source_of(generator, input.device)})


def standard_von_mises(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Angles about 0 with the concentrations that ``input`` says."""
    return gate(
        draw_von_mises, (input.detach(),), {"generator": source_of(generator, input.device)}
    )


__all__ = ["binomial"]
