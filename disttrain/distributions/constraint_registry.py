"""From sets to transforms: of all real numbers onto the set that a constraint describes.

``biject_to(constraint)`` gives a bijection, ``transform_to(constraint)`` a map that may have more
numbers than the set has dimensions and suits optimizers. Both know constraints by their class;
``register`` teaches them more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import constraints, transforms
from .constraints import Constraint
from .transforms import Transform

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Which factory makes a transform for constraints of which class."""

    def __init__(self, text: str | None = None) -> None:
        self._registry: dict[type[Constraint], Factory] = {}
        if text is not None:
            self.__doc__ = text

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """``factory(constraint)`` makes the transform for constraints of this class (an instance
        stands for its class). Without a factory: a decorator of one."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, Constraint)):
            raise TypeError(
                "Expected constraint to be either a Constraint subclass or instance, but got "
                f"{constraint}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """The transform whose values satisfy ``constraint``. NotImplementedError: none is known."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints; register() a factory"
            )
        return factory(constraint)


biject_to = ConstraintRegistry("A bijection from all real numbers onto what a constraint allows.")
transform_to = ConstraintRegistry(
    "A transform from real numbers onto what a constraint allows, which may have several for one "
    "value and suits optimizers."
)


def _both(*kinds: type[Constraint]) -> Callable[[Factory], Factory]:
    def keep(factory: Factory) -> Factory:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return keep


@_both(type(constraints.real))
def _of_real(constraint: Constraint) -> Transform:
    return transforms.identity_transform


def _of_independent(registry: ConstraintRegistry) -> Factory:
    return lambda c: transforms.IndependentTransform(
        registry(c.base_constraint), c.reinterpreted_batch_ndims
    )


@_both(constraints.greater_than, constraints.greater_than_eq)
def _of_greater_than(c: Any) -> Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(c.lower_bound, 1)]
    )


@_both(constraints.less_than)
def _of_less_than(c: Any) -> Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(c.upper_bound, -1)]
    )


@_both(constraints.half_open_interval, constraints.interval)
def _of_interval(c: Any) -> Transform:
    low, high = c.lower_bound, c.upper_bound
    if isinstance(low, (int, float)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)]
    )


@_both(type(constraints.corr_cholesky))
def _of_corr_cholesky(constraint: Constraint) -> Transform:
    return transforms.CorrCholeskyTransform()


def _of_cat(registry: ConstraintRegistry) -> Factory:
    return lambda c: transforms.CatTransform([registry(x) for x in c.cseq], c.dim, c.lengths)


def _of_stack(registry: ConstraintRegistry) -> Factory:
    return lambda c: transforms.StackTransform([registry(x) for x in c.cseq], c.dim)


for _registry in (biject_to, transform_to):
    _registry.register(constraints.independent, _of_independent(_registry))
    _registry.register(constraints.cat, _of_cat(_registry))
    _registry.register(constraints.stack, _of_stack(_registry))
biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
for _definite in (constraints.positive_semidefinite, constraints.positive_definite):
    transform_to.register(_definite, lambda c: transforms.PositiveDefiniteTransform())
