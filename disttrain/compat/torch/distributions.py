"""``torch.distributions``: loaded when the first name is asked for."""

from __future__ import annotations

import functools

import disttrain as dt

from .shim import Shim

ROOT = "torch.distributions"
# each class is also in a module of its own
_PLACES = {
    kind.lower(): kind
    for kind in (
        "Bernoulli", "Categorical", "Cauchy", "Distribution", "Exponential", "Gumbel",
        "Independent", "Laplace", "Normal", "Uniform",
    )
}  # fmt: skip


def modules() -> dict[str, Shim]:
    """``torch.distributions`` and its modules."""
    return {
        ROOT: Shim(ROOT).later(_whole),
        f"{ROOT}.constraints": Shim(f"{ROOT}.constraints").later(_constraints),
        f"{ROOT}.kl": Shim(f"{ROOT}.kl").later(_kl),
        **{
            f"{ROOT}.{place}": Shim(f"{ROOT}.{place}").later(functools.partial(_one, kind))
            for place, kind in _PLACES.items()
        },
    }


def _whole(shim: Shim) -> None:
    shim.take(dt.distributions)


def _constraints(shim: Shim) -> None:
    shim.take(dt.distributions.constraints, dt.distributions.constraints.__all__)


def _kl(shim: Shim) -> None:
    shim.take(dt.distributions, ["kl_divergence", "register_kl"])


def _one(kind: str, shim: Shim) -> None:
    shim.take(dt.distributions, [kind])
