"""The divergence of Kullback and Leibler between two distributions: which formula is taken. The
formulas are in ``formulas.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.tensor import Tensor
from ...trace import warn
from ..distribution import Distribution

__all__ = ["kl_divergence", "register_kl"]

Formula = Callable[[Any, Any], Tensor]
_TABLE: dict[tuple[type, type], Formula] = {}
_FOUND: dict[tuple[type, type], Formula] = {}  # by the classes asked for


def register_kl(type_p: type, type_q: type) -> Callable[[Formula], Formula]:
    """Decorator: ``formula(p, q)`` is the divergence for these two classes and their subclasses.
    Of several that fit, the one for the nearest classes is taken. TypeError: not a distribution."""
    for name, given in (("type_p", type_p), ("type_q", type_q)):
        if not (isinstance(given, type) and issubclass(given, Distribution)):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {given}")

    def keep(formula: Formula) -> Formula:
        _TABLE[type_p, type_q] = formula
        _FOUND.clear()
        return formula

    return keep


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean under ``p`` of log p - log q, in nats, [*batch_shape]. NotImplementedError: no
    formula is registered for the two classes."""
    kinds = type(p), type(q)
    formula = _FOUND.get(kinds)
    if formula is None:
        formula = _FOUND[kinds] = _formula(*kinds)
    return formula(p, q)


def _formula(of_p: type, of_q: type) -> Formula:
    fits = [
        (of_p.__mro__.index(a), of_q.__mro__.index(b), (a, b))
        for a, b in _TABLE
        if issubclass(of_p, a) and issubclass(of_q, b)
    ]
    if not fits:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {of_p.__name__} and q type {of_q.__name__}; "
            "register_kl gives one"
        )
    by_p, by_q = min(fits, key=lambda f: f[:2]), min(fits, key=lambda f: (f[1], f[0]))
    if _TABLE[by_p[2]] is not _TABLE[by_q[2]]:
        one, other = (" , ".join(t.__name__ for t in f[2]) for f in (by_p, by_q))
        warn(
            f"Ambiguous kl_divergence({of_p.__name__}, {of_q.__name__}). Please "
            f"register_kl for these two; ({one}) is taken before ({other})", RuntimeWarning,
        )  # fmt: skip
    return _TABLE[by_p[2]]
