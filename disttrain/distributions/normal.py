"""The normal distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..core.grad_mode import no_grad
from ..core.tensor import Tensor
from ..ops.api import broadcast_tensors, erf, erfinv, log, normal, randn, tensor
from .constraints import Constraint, positive, real
from .distribution import Distribution


class Normal(Distribution):
    """Mean ``loc`` and standard deviation ``scale``, which are broadcast against each other."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"loc": real, "scale": positive}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        like = next((t for t in (loc, scale) if isinstance(t, Tensor)), tensor(0.0))
        both = [
            t if isinstance(t, Tensor) else tensor(float(t), dtype=like.dtype, device=like.device)
            for t in (loc, scale)
        ]
        self.loc, self.scale = broadcast_tensors(*both)
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def support(self) -> Constraint:
        return real

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + self.scale * randn(*shape, dtype=self.loc.dtype, device=self.loc.device)

    def log_prob(self, value: Tensor) -> Tensor:
        if isinstance(value, Tensor):
            self._check("value", value, value == value, "Real()")
        z = (value - self.loc) / self.scale
        return -0.5 * z * z - log(self.scale) - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a value not above ``value``."""
        return 0.5 * (1 + erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Tensor) -> Tensor:
        """The value that is not exceeded with probability ``value``."""
        return self.loc + self.scale * erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + log(self.scale)

    def expand(self, batch_shape: Sequence[int]) -> Normal:
        """The same distributions, repeated to ``batch_shape``."""
        shape = tuple(batch_shape)
        return Normal(self.loc.expand(shape), self.scale.expand(shape), validate_args=False)

    def _shown(self) -> dict[str, Any]:
        return {"loc": self.loc, "scale": self.scale}
