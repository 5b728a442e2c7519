"""``torch.distributions``: those that policies are drawn from."""

from __future__ import annotations

import math
from typing import Any

import disttrain as dt

from ...errors import ConfigError
from ...nn.functional import softplus
from .shim import Shim


class Distribution:
    """Independent draws of ``batch_shape``, each of ``event_shape``."""

    def __init__(self, batch_shape: Any = (), event_shape: Any = ()) -> None:
        self._batch_shape, self._event_shape = dt.Size(batch_shape), dt.Size(event_shape)

    @property
    def batch_shape(self) -> Any:
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        return self._event_shape

    def _whole(self, sample_shape: tuple) -> tuple[int, ...]:
        return (*sample_shape, *self._batch_shape, *self._event_shape)

    def rsample(self, sample_shape: object = ()) -> Any:
        """Draws that gradients of the parameters go through."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample; use sample")

    def sample(self, sample_shape: object = ()) -> Any:
        """Draws of shape ``sample_shape`` + ``batch_shape``."""
        with dt.no_grad():
            return self.rsample(sample_shape)


def _one_of(name: str, probs: Any, logits: Any) -> Any:
    if (probs is None) == (logits is None):
        raise ConfigError(
            f"{name}: Either `probs` or `logits` must be specified, but not both; "
            f"{'neither' if probs is None else 'both'} given"
        )
    given = probs if logits is None else logits
    return given if isinstance(given, dt.Tensor) else dt.tensor(float(given))


class Categorical(Distribution):
    """One of the numbers 0 .. K-1, by weights ``probs`` (..., K) or their logarithms."""

    def __init__(
        self, probs: object = None, logits: object = None, validate_args: object = None
    ) -> None:
        given = _one_of("Categorical", probs, logits)
        if given.ndim < 1:
            raise ConfigError("Categorical: the weights must be at least one-dimensional")
        if logits is None:
            if validate_args is not False and bool((given.detach() < 0).any()):
                raise ConfigError(
                    "Categorical: a weight below 0 was given; needed are weights >= 0"
                )
            self.probs = given / given.sum(-1, keepdim=True)
            tiny = dt.finfo(given.dtype).eps
            self.logits = dt.log(dt.clamp(self.probs, tiny, 1 - tiny))
        else:
            self.logits = given - dt.logsumexp(given, -1, keepdim=True)
            self.probs = dt.softmax(given, -1)
        super().__init__(given.shape[:-1])

    def sample(self, sample_shape: Any = ()) -> Any:
        with dt.no_grad():
            count = math.prod(sample_shape)
            table = self.probs.detach().reshape(-1, self.probs.shape[-1])
            drawn = dt.multinomial(table, count, True).permute(1, 0)
            return drawn.reshape(self._whole(sample_shape))

    def log_prob(self, value: Any) -> Any:
        index = value.long().unsqueeze(-1)
        shape = dt.broadcast_shapes(index.shape[:-1], self._batch_shape)
        table = self.logits.expand(*shape, self.logits.shape[-1])
        return table.gather(-1, index.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Any:
        least = dt.finfo(self.logits.dtype).min
        return -(dt.clamp(self.logits, min=least) * self.probs).sum(-1)

    @property
    def mode(self) -> Any:
        return self.probs.argmax(-1)


class Bernoulli(Distribution):
    """1 with probability ``probs``, else 0."""

    def __init__(
        self, probs: object = None, logits: object = None, validate_args: object = None
    ) -> None:
        given = _one_of("Bernoulli", probs, logits)
        if logits is None:
            tiny = dt.finfo(given.dtype).eps
            safe = dt.clamp(given, tiny, 1 - tiny)
            self.probs, self.logits = given, dt.log(safe) - dt.log1p(-safe)
        else:
            self.probs, self.logits = dt.sigmoid(given), given
        super().__init__(given.shape)
        self.mean, self.variance = self.probs, self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        with dt.no_grad():
            return dt.bernoulli(self.probs.detach().expand(*self._whole(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        return value * self.logits - softplus(self.logits)

    def entropy(self) -> Any:
        return softplus(self.logits) - self.logits * self.probs


class Normal(Distribution):
    """Gaussian numbers of mean ``loc`` and standard deviation ``scale``."""

    def __init__(self, loc: Any, scale: Any, validate_args: object = None) -> None:
        one, other = (v if isinstance(v, dt.Tensor) else dt.tensor(float(v)) for v in (loc, scale))
        self.loc, self.scale = dt.broadcast_tensors(one, other)
        if validate_args is not False and not bool((self.scale.detach() > 0).all()):
            raise ConfigError("Normal: scale must be above 0 everywhere")
        super().__init__(self.loc.shape)
        self.mean, self.stddev, self.variance = self.loc, self.scale, self.scale**2

    def rsample(self, sample_shape: Any = ()) -> Any:
        noise = dt.randn(*self._whole(sample_shape), dtype=self.loc.dtype)
        return self.loc + noise * self.scale

    def log_prob(self, value: Any) -> Any:
        z = (value - self.loc) / self.scale
        return -(z * z) / 2 - dt.log(self.scale) - math.log(math.sqrt(2 * math.pi))

    def entropy(self) -> Any:
        return 0.5 + 0.5 * math.log(2 * math.pi) + dt.log(self.scale)


def modules() -> dict[str, Shim]:
    """``torch.distributions`` and its modules."""
    kinds = (Distribution, Categorical, Bernoulli, Normal)
    root = "torch.distributions"
    return {
        root: Shim(root).give(**{kind.__name__: kind for kind in kinds}),
        **{
            f"{root}.{kind.__name__.lower()}": Shim(f"{root}.{kind.__name__.lower()}").give(
                **{kind.__name__: kind}
            )
            for kind in kinds
        },
    }
