"""``jax.random``: a table of names over ``dt.keyed``."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np

from ... import keyed
from ...arrays.axes import shape_of
from ...core.types import dtypes
from .array import Array, kind_of, unwrap, wrap
from .key_types import IMPL, KeyType, is_key, key_type
from .types import canonical, result_kind

# Name (arguments after the key): parameters, kinds of the result's type, native function. A mark
# after a parameter: "/k": its last k dimensions are no part of the shape; "-": all are none; "~":
# in its own type; "!": as it is; "?": a number stays one. Before it and "=": its native name.
_TABLE = """
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


def _sampler(line: str) -> Callable[..., Array]:
    name, _, rest = line.partition("(")
    arguments, _, rest = rest.partition("):")
    rule, native, *marked = rest.split()
    draw, params = getattr(keyed, native), [_marked(m) for m in marked]
    signature = inspect.Signature([*_parameters(f"key, {arguments}"), _SHARDING])
    shaped = [(p, last) for _, p, mark, last in params if mark in ("", "~") and rule != "c"]
    typed = [p for _, p, mark, _ in params if mark != "!"]

    def sampler(*args: Any, **kwargs: Any) -> Array:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given, named = bound.arguments, {}
        sharding = given.pop("out_sharding")
        if sharding is not None and not getattr(sharding.mesh, "empty", False):
            raise NotImplementedError(f"jax.random.{name}: out_sharding is not supported")
        key = key_of(name, given["key"])[0]
        kind = _kind(name, rule, given, typed)
        for own_name, p, mark, _ in params:
            value = given[p]
            if mark != "!" and not (mark == "?" and isinstance(value, (int, float))):
                own = mark == "~" or rule == "c"
                value = unwrap(value, _own(value, name) if own else kind)
            named[own_name] = value
        if rule != "c":
            shapes = [(np.shape(given[p]), last) for p, last in shaped]
            asked = None if given["shape"] is None else shape_of(given["shape"])
            named |= {"shape": keyed.common_shape(name, asked, shapes), "dtype": kind}
        return wrap(draw(key, **named))

    sampler.__name__ = sampler.__qualname__ = name
    sampler.__doc__ = f"``dt.keyed.{native}`` with JAX's arguments."
    sampler.__signature__ = signature  # type: ignore[attr-defined]
    return sampler


def _marked(text: str) -> tuple[str, str, str, int]:
    """The native name of a parameter, JAX's, its mark, and how many dimensions stay."""
    mark = text[-1] if text[-1] in "!-?~" else ""
    own, _, name = text.rstrip("!-?~").rpartition("=")
    name, _, last = name.partition("/")
    return own or name, name, mark, int(last or 0)


_SHARDING = inspect.Parameter("out_sharding", inspect.Parameter.KEYWORD_ONLY, default=None)


def _parameters(text: str) -> list[inspect.Parameter]:
    made = []
    for word in text.replace("()", "[]").split(", "):
        name, _, default = word.partition("=")
        value = ast.literal_eval(default) if default else inspect.Parameter.empty
        how = inspect.Parameter.POSITIONAL_OR_KEYWORD
        made.append(inspect.Parameter(name, how, default=() if value == [] else value))
    return made


def _own(value: Any, name: str) -> np.dtype:
    """The type of a parameter itself: inexact, but for integers' ends."""
    kind = kind_of(value)[0]
    if name == "bernoulli" and kind.kind not in "fV":
        raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {kind}.")
    if name == "randint":
        return kind if kind.kind in "iu" else canonical(int)
    return result_kind((kind, kind_of(value)[1]), (canonical(float), True))[0]


def _kind(name: str, rule: str, given: dict, params: list[str]) -> np.dtype:
    """The type of the result."""
    dtype = given.get("dtype")
    if rule == "of":
        own = result_kind(*(kind_of(given[p]) for p in params), (canonical(float), True))[0]
        dtype = own if dtype is None else dtype
    kind = canonical(float if dtype is None else dtype)
    kinds = "".join(_KINDS.get(c, "") for c in rule) if rule not in ("p", "c") else "fV"
    if kind.kind not in kinds:
        if rule == "ti":
            raise TypeError(f"randint only accepts integer dtypes, got {kind}")
        words = _WORDS.get(rule, "a float")
        raise ValueError(f"dtype argument to `{name}` must be {words} dtype, got {kind}")
    for p in params if rule == "sf" else ():
        if result_kind(kind_of(given[p]), (kind, False))[0] != kind:
            raise TypeError(
                f"In arguments to {name}, cannot safely cast argument of type "
                f"{kind_of(given[p])[0]} to {kind}"
            )
    return kind


NAMES: dict[str, Any] = {
    line.partition("(")[0]: _sampler(line) for line in _TABLE.strip().split("\n")
}


# --- keys -----------------------------------------------------------------------------------------
def key_of(where: str, key: Any, batched: bool = False) -> tuple[Any, bool]:
    """The Tensor of typed keys, and whether they came as words."""
    raw = not is_key(key)
    if raw and not isinstance(key, (Array, np.ndarray, np.generic, int, float)):
        raise TypeError(f"unexpected PRNG key type {type(key)}")
    found = _of_words(key) if raw else key._value
    if not batched and found.ndim:
        raise ValueError(
            f"{where} accepts a single key, but was given a key array of shape "
            f"{tuple(key.shape)} != (). Use jax.vmap for batching."
        )
    return found, raw


def _of_words(words: Any) -> Any:
    wrong = (
        "have ndim, shape, and dtype attributes. Got {}" if not hasattr(words, "ndim")
        else ".ndim >= 1; got ndim={0.ndim}" if words.ndim < 1
        else ".shape to end with (2,); got shape={0.shape}" if words.shape[-1] != 2
        else ".dtype = uint32; got dtype={0.dtype}" if words.dtype != np.uint32 else ""
    )  # fmt: skip
    if wrong:
        to = "" if wrong[0] == "." else " to "
        said = f"JAX encountered invalid PRNG key data: expected key_data{to}{wrong}"
        raise TypeError(said.format(words))
    return keyed.of_data(unwrap(words))


def _seeded(where: str, seed: Any, *impls: Any) -> Any:
    if all(i is not None for i in impls[:2]) and len(impls) > 1:
        raise ValueError(f"Cannot specify both `impl` and `dtype` arguments to jax.random.{where}")
    for impl in impls:
        if impl in ("rbg", "unsafe_rbg"):
            raise NotImplementedError(f"the PRNG implementation {impl!r} is not here; {IMPL!r} is")
        if impl is not None and impl != IMPL and not isinstance(impl, KeyType):
            error = ValueError if isinstance(impl, str) else TypeError
            said = f'unrecognized PRNG implementation "{impl}". Did you mean one of: "{IMPL}"?'
            raise error(said)
    if where == "wrap_key_data":
        return _of_words(seed)
    if is_key(seed):
        raise TypeError(f"{where} accepts a scalar seed, but was given a PRNG key.")
    if np.ndim(seed):
        raise TypeError(
            f"{where} accepts a scalar seed, but was given an array of shape {np.shape(seed)} != "
            "(). Use jax.vmap for batching"
        )
    if isinstance(seed, int) and not isinstance(seed, bool):
        seed = np.asarray(np.int64(seed)).astype(canonical(int))
    value = unwrap(seed)
    if value.meta()[1].kind not in "iu":
        raise TypeError(f"PRNG key seed must be an integer; got {seed!r}")
    return keyed.seed(value)


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """A typed key of an integer."""
    return wrap(_seeded("key", seed, impl, dtype))


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:  # noqa: N802
    """A key of an integer, as two words (uint32 [2])."""
    return wrap(keyed.data(_seeded("PRNGKey", seed, impl)))


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """Typed keys of words."""
    return wrap(_seeded("wrap_key_data", key_bits_array, impl, dtype))


def key_data(keys: Any) -> Array:
    """The words of keys, uint32 [..., 2]."""
    return wrap(keyed.data(key_of("key_data", keys, True)[0]))


def key_dtype(impl: Any = None) -> KeyType:
    """The type of keys."""
    return key_type


def key_impl(keys: Any) -> str:
    """How numbers are made of these keys."""
    return IMPL if key_of("key_impl", keys, True) else ""


def clone(key: Any) -> Any:
    """The key once more."""
    return key


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """New keys."""
    found, raw = key_of("split", key)
    new = keyed.split(found, shape_of(num))
    return wrap(keyed.data(new) if raw else new)


def fold_in(key: Any, data: Any) -> Array:
    """The key of a key and a number."""
    found, raw = key_of("fold_in", key)
    if np.ndim(data):
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array ofshape {np.shape(data)} != (). Use "
            "jax.vmap for batching."
        )
    if isinstance(data, int) and not 0 <= data < 1 << 32:
        raise OverflowError(f"Python integer {data} out of bounds for uint32")
    new = keyed.fold_in(found, data if isinstance(data, int) else unwrap(data))
    return wrap(keyed.data(new) if raw else new)


# --- choices and orders ---------------------------------------------------------------------------
def _items(x: Any) -> Any:
    """An array, or how many there are."""
    if np.ndim(x):
        return unwrap(x)
    if kind_of(x)[0].kind not in "iu":
        raise TypeError("x must be an integer or at least 1-dimensional")
    return index(x)


def _whole(out: Any, items: Any) -> Array:
    return wrap(out.to(dtypes.of(canonical(int))) if isinstance(items, int) else out)


def permutation(
    key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None
) -> Array:
    """A range, or an array along ``axis``, shuffled."""
    found, items = key_of("permutation", key)[0], _items(x)
    return _whole(keyed.permutation(found, items, axis, independent), items)


def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0,
    mode: str | None = None,
) -> Array:  # fmt: skip
    """A sample of an array along ``axis``, or of a range."""
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"shape argument of jax.random.choice must be a sequence, got {shape}")
    found, items = key_of("choice", key)[0], _items(a)
    chances = None if p is None else unwrap(p, _own(p, "choice"))
    out = keyed.choice(found, items, shape_of(shape), replace, chances, axis, mode)
    return _whole(out, items)


for _fn in (key, PRNGKey, wrap_key_data, key_data, key_dtype, key_impl, clone, split, fold_in,
            permutation, choice):  # fmt: skip
    NAMES[_fn.__name__] = _fn
globals().update(NAMES)
