"""Functions that draw with keys by rows of a table: parameters that a program has in place of
tensors, whose shapes and types make those of the result where none are given.

    names = Samplers(Lifting(), lambda name, key: key).table()
    names["beta"](key, 2.0, np.float32([1, 2]))
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.axes import shape_of
from ..arrays.lifting import Kind, Lifting
from ..core.tensor import Tensor
from . import choices, continuous, whole
from .keys import common_shape

# Name (arguments after the key): parameters, kinds of the result's type, native function. A mark
# after a parameter: "/k": its last k dimensions are no part of the shape; "-": all are none; "~":
# in its own type; "!": as it is; "?": a number stays one. Before it and "=": its native name.
TABLE = """
bits(shape=(), dtype='uint64'):                                 u   bits
uniform(shape=(), dtype=None, minval=0.0, maxval=1.0):          f   uniform             low=minval? high=maxval?
normal(shape=(), dtype=None):                                   fc  normal
cauchy(shape=(), dtype=None):                                   f   cauchy
exponential(shape=(), dtype=None):                              f   exponential
gumbel(shape=(), dtype=None, mode=None):                        f   gumbel              mode!
laplace(shape=(), dtype=None):                                  f   laplace
logistic(shape=(), dtype=None):                                 f   logistic
maxwell(shape=(), dtype=None):                                  f   maxwell
randint(shape, minval, maxval, dtype='int64'):                  ti  integers            low=minval~ high=maxval~
bernoulli(p=0.5, shape=None, mode='low'):                       p   bernoulli           p~ mode!
rademacher(shape=(), dtype='int64'):                            a   rademacher
beta(a, b, shape=None, dtype=None):                             sf  beta                a b
gamma(a, shape=None, dtype=None):                               f   gamma               a
loggamma(a, shape=None, dtype=None):                            f   log_gamma           a
pareto(b, shape=None, dtype=None):                              sf  pareto              b
t(df, shape=None, dtype=None):                                  sf  student             df
chisquare(df, shape=None, dtype=None):                          sf  chisquare           df
f(dfnum, dfden, shape=None, dtype=None):                        sf  fisher              above=dfnum below=dfden
rayleigh(scale, shape=None, dtype=None):                        sf  rayleigh            scale
wald(mean, shape=None, dtype=None):                             sf  wald                mean
triangular(left, mode, right, shape=None, dtype=None):          sf  triangular          left mode right
lognormal(sigma=1.0, shape=None, dtype=None):                   sf  lognormal           sigma
truncated_normal(lower, upper, shape=None, dtype=None):         f   truncated_normal    low=lower high=upper
double_sided_maxwell(loc, scale, shape=(), dtype=None):         f   double_sided_maxwell loc- scale-
weibull_min(scale, concentration, shape=(), dtype=None):        f   weibull             scale- concentration-
generalized_normal(p, shape=(), dtype=None):                    f   generalized_normal  p-
ball(d, p=2, shape=(), dtype=None):                             f   ball                p- d!
orthogonal(n, shape=(), dtype=None, m=None):                    f   orthogonal          n! m!
dirichlet(alpha, shape=None, dtype=None):                       f   dirichlet           alpha/1
multivariate_normal(mean, cov, shape=None, dtype=None, method='cholesky'): of multivariate_normal mean/1 cov/2 method!
poisson(lam, shape=None, dtype='int64'):                        a   poisson             rate=lam~
binomial(n, p, shape=None, dtype=None):                         f   binomial            n~ p~
multinomial(n, p, shape=None, dtype=None, unroll=1):            f   multinomial         n- p~
geometric(p, shape=None, dtype='int64'):                        i   geometric           p~
categorical(logits, axis=-1, shape=None, replace=True, mode=None): c categorical        logits- axis! shape! replace! mode!
"""  # noqa: E501
_WORDS = {"f": "a float", "fc": "a float or complex", "u": "an unsigned int", "i": "an int"}
_KINDS = {"f": "fV", "c": "c", "u": "u", "i": "iu", "a": "biufV"}


class Samplers:
    """Rows read for a program: ``lifting`` knows its arrays, ``key_of(name, key)`` gives the tensor
    of a key; ``options(name, arguments)`` takes out arguments that are the program's own."""

    def __init__(
        self, lifting: Lifting, key_of: Callable[[str, Any], Tensor],
        options: Callable[[str, dict], None] = lambda name, arguments: None,
    ) -> None:  # fmt: skip
        self.lifting, self.key_of, self.options = lifting, key_of, options

    def table(self, text: str = TABLE) -> dict[str, Callable]:
        """The functions of the rows of ``text``."""
        return {line.partition("(")[0]: self.sampler(line) for line in text.strip().split("\n")}

    def sampler(self, line: str) -> Callable:
        """The function of a row."""
        name, _, rest = line.partition("(")
        arguments, _, rest = rest.partition("):")
        rule, native, *marked = rest.split()
        draw = next(getattr(m, native) for m in (continuous, whole, choices) if hasattr(m, native))
        params = [_marked(m) for m in marked]
        signature = inspect.Signature(_parameters(f"key, {arguments}"))
        shaped = [(p, last) for _, p, mark, last in params if mark in ("", "~") and rule != "c"]
        typed = [p for _, p, mark, _ in params if mark != "!"]

        def run(*args: Any, **kwargs: Any) -> Any:
            self.options(name, kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given, named = bound.arguments, {}
            key = self.key_of(name, given["key"])
            kind = self._kind(name, rule, given, typed)
            for own_name, p, mark, _ in params:
                value = given[p]
                if mark != "!" and not (mark == "?" and isinstance(value, (int, float))):
                    own = mark == "~" or rule == "c"
                    value = self._tensor(value, self._own(value, name) if own else kind)
                named[own_name] = value
            if rule != "c":
                shapes = [(np.shape(given[p]), last) for p, last in shaped]
                asked = None if given["shape"] is None else shape_of(given["shape"])
                named |= {"shape": common_shape(name, asked, shapes), "dtype": kind}
            return self.lifting.give(draw(key, **named), False)

        run.__signature__ = signature  # type: ignore[attr-defined]
        return self.lifting.named(run, name)  # type: ignore[no-any-return]

    def _tensor(self, value: Any, kind: np.dtype) -> Tensor:
        if isinstance(value, (list, tuple)):
            return self.lifting.made(value, kind)[0]
        return self.lifting.to_tensor(self.lifting.plain(value), kind)

    def _kind_of(self, name: str, value: Any) -> Kind:
        if isinstance(value, (list, tuple)):
            return self.lifting.made(value, None)[0].meta()[1], False
        return self.lifting.kind_of(self.lifting.plain(value), name)

    def _own(self, value: Any, name: str) -> np.dtype:
        """The type of a parameter itself: inexact, but for integers' ends."""
        kind, weak = self._kind_of(name, value)
        if name == "bernoulli" and kind.kind not in "fV":
            raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {kind}.")
        if name == "randint":
            return kind if kind.kind in "iu" else self.lifting.of_number(0)[0]
        return self.lifting.meet([(kind, weak), self.lifting.of_number(0.0)])[0]

    def _kind(self, name: str, rule: str, given: dict, params: list[str]) -> np.dtype:
        """The type of the result."""
        dtype, default = given.get("dtype"), self.lifting.of_number(0.0)
        if rule == "of" and dtype is None:
            dtype = self.lifting.meet([*(self._kind_of(name, given[p]) for p in params), default])[
                0
            ]
        kind = default[0] if dtype is None else self.lifting.known(dtype)
        kinds = "".join(_KINDS.get(c, "") for c in rule) if rule not in ("p", "c") else "fV"
        if kind.kind not in kinds:
            if rule == "ti":
                raise TypeError(f"{name} only accepts integer dtypes, got {kind}")
            words = _WORDS.get(rule, "a float")
            raise ValueError(f"dtype argument to `{name}` must be {words} dtype, got {kind}")
        for p in params if rule == "sf" else ():
            own = self._kind_of(name, given[p])
            if self.lifting.meet([own, (kind, False)])[0] != kind:
                raise TypeError(
                    f"In arguments to {name}, cannot safely cast argument of type {own[0]} to "
                    f"{kind}"
                )
        return kind


def _marked(text: str) -> tuple[str, str, str, int]:
    """The native name of a parameter, the program's, its mark, and how many dimensions stay."""
    mark = text[-1] if text[-1] in "!-?~" else ""
    own, _, name = text.rstrip("!-?~").rpartition("=")
    name, _, last = name.partition("/")
    return own or name, name, mark, int(last or 0)


def _parameters(text: str) -> list[inspect.Parameter]:
    made = []
    for word in text.replace("()", "[]").split(", "):
        name, _, default = word.partition("=")
        value = ast.literal_eval(default) if default else inspect.Parameter.empty
        how = inspect.Parameter.POSITIONAL_OR_KEYWORD
        made.append(inspect.Parameter(name, how, default=() if value == [] else value))
    return made
