"""``jax.random``: its names, arguments and errors over ``dt.keyed``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from ... import keyed
from ...core.types import dtypes
from ...ops import api as ops
from .array import Array, kind_of, unwrap, wrap
from .key_types import IMPL, KeyType, is_key, key_type
from .types import canonical, result_kind

Shape = Sequence[int]
_BATCHED = "accepts a single key, but was given a key array of shape {} != (). Use jax.vmap for batching."


# --- what arguments mean ------------------------------------------------------------------------
def _value(where: str, key: Any, batched: bool = False) -> tuple[Any, bool]:
    """The Tensor of typed keys, and whether they came as raw words."""
    raw = not is_key(key)
    if raw and not isinstance(key, (Array, np.ndarray, np.generic, int, float)):
        raise TypeError(f"unexpected PRNG key type {type(key)}")
    found = _wrapped(key) if raw else key._value
    if not batched and found.ndim:
        raise ValueError(f"{where} {_BATCHED.format(tuple(key.shape))}")
    return found, raw


def _wrapped(words: Any) -> Any:
    said = "JAX encountered invalid PRNG key data: expected key_data"
    if not all(hasattr(words, name) for name in ("ndim", "shape", "dtype")):
        raise TypeError(f"{said} to have ndim, shape, and dtype attributes. Got {words}")
    if words.ndim < 1:
        raise TypeError(f"{said}.ndim >= 1; got ndim={words.ndim}")
    if tuple(words.shape[-1:]) != (2,):
        raise TypeError(
            f"{said}.shape to end with (2,); got shape={tuple(words.shape)} for impl={IMPL}"
        )
    if words.dtype != np.uint32:
        raise TypeError(f"{said}.dtype = uint32; got dtype={words.dtype}")
    return keyed.of_data(unwrap(words))


def _one(where: str, key: Any) -> Any:
    return _value(where, key)[0]


def _as_given(keys: Any, raw: bool) -> Array:
    return wrap(keyed.data(keys) if raw else keys)


def _shape(shape: Any) -> tuple[int, ...]:
    try:
        return (index(shape),) if np.ndim(shape) == 0 else tuple(index(n) for n in shape)
    except TypeError:
        raise TypeError(
            "Shapes must be 1D sequences of concrete values of integer type, got "
            f"{shape!r}."
        ) from None


def _kind(where: str, dtype: Any, kinds: str = "fV", words: str = "a float") -> np.dtype:
    kind = canonical(dtype if dtype is not None else int if kinds == "iu" else float)
    if kind.kind not in kinds:
        raise ValueError(f"dtype argument to `{where}` must be {words} dtype, got {kind}")
    return kind


def _common(where: str, shape: Any, *params: Any) -> tuple[int, ...]:
    """The shape of the result: that of the parameters, unless given."""
    shapes = [tuple(np.shape(p)) for p in params]
    if shape is None:
        return np.broadcast_shapes(*shapes)
    shape = _shape(shape)
    try:
        both = np.broadcast_shapes(shape, *shapes)
    except ValueError:
        raise ValueError(f"Incompatible shapes for broadcasting: shapes={[shape, *shapes]}") from None
    if both != shape:
        raise ValueError(
            f"{where} parameter shapes must be broadcast-compatible with shape argument, and the "
            f"result of broadcasting the shapes must equal the shape argument, but got result {both} "
            f"for shape argument {shape}."
        )
    return shape


def _unsharded(where: str, sharding: Any) -> None:
    if sharding is not None:
        raise NotImplementedError(
            f"jax.random.{where}: out_sharding is not supported; use "
            "jax.lax.with_sharding_constraint on the result"
        )


def _plain(
    where: str, draw: Callable, key: Any, shape: Any, dtype: Any, sharding: Any, **how: Any
) -> Array:
    """What ``draw`` draws without parameters."""
    _unsharded(where, sharding)
    found, kind = _one(where, key), _kind(where, dtype)
    return wrap(draw(found, _shape(shape), kind, **how))


def _drawn(
    where: str, draw: Callable, key: Any, params: tuple, shape: Any, dtype: Any,
    sharding: Any = None, safe: bool = True, **how: Any,
) -> Array:  # fmt: skip
    """What ``draw`` draws with ``params``, in whose type they go without loss (``safe``)."""
    _unsharded(where, sharding)
    found, kind = _one(where, key), _kind(where, dtype)
    for p in params if safe else ():
        if result_kind(kind_of(p), (kind, False))[0] != kind:
            raise TypeError(
                f"In arguments to {where}, cannot safely cast argument of type "
                f"{kind_of(p)[0]} to {kind}"
            )
    shape = _common(where, shape, *params)
    return wrap(draw(found, *(unwrap(p, kind) for p in params), shape, kind, **how))


# --- keys ---------------------------------------------------------------------------------------
def _known(impl: Any) -> None:
    if impl is None or isinstance(impl, KeyType) or impl == IMPL:
        return
    if impl in ("rbg", "unsafe_rbg"):
        raise NotImplementedError(f"the PRNG implementation {impl!r} is not here; {IMPL!r} is")
    if isinstance(impl, str):
        raise ValueError(
            f'unrecognized PRNG implementation "{impl}". Did you mean one of: "{IMPL}"?'
        )
    raise TypeError(f"unrecognized type {type(impl)} for specifying PRNG implementation.")


def _seeded(where: str, seed: Any, impl: Any) -> Any:
    _known(impl)
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
    return wrap(_seeded("key", seed, _either(impl, dtype, "key")))


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:  # noqa: N802
    """A key of an integer, as two words (uint32 [2])."""
    return wrap(keyed.data(_seeded("PRNGKey", seed, impl)))


def _either(impl: Any, dtype: Any, where: str) -> Any:
    if impl is not None and dtype is not None:
        raise ValueError(
            f"Cannot specify both `impl` and `dtype` arguments to jax.random.{where}"
        )
    return impl if dtype is None else dtype


def key_dtype(impl: Any = None) -> KeyType:
    """The type of keys."""
    _known(impl)
    return key_type


def key_data(keys: Any) -> Array:
    """The words of keys, uint32 [..., 2]."""
    return wrap(keyed.data(_value("key_data", keys, True)[0]))


def key_impl(keys: Any) -> str:
    """How numbers are made of these keys."""
    _value("key_impl", keys, True)
    return IMPL


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """Typed keys of words."""
    _known(_either(impl, dtype, "wrap_key_data"))
    return wrap(_wrapped(key_bits_array))


def split(key: Any, num: int | tuple[int, ...] = 2) -> Array:
    """New keys, in front."""
    found, raw = _value("split", key)
    shape = num if isinstance(num, (tuple, list)) else (num,)
    return _as_given(keyed.split(found, _shape(shape)), raw)


def fold_in(key: Any, data: Any) -> Array:
    """The key of a key and a number."""
    found, raw = _value("fold_in", key)
    if np.ndim(data):
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array ofshape {np.shape(data)} != (). Use "
            "jax.vmap for batching."
        )
    number = data if isinstance(data, int) else unwrap(data)
    if isinstance(data, int) and not 0 <= data < 1 << 32:
        raise OverflowError(f"Python integer {data} out of bounds for uint32")
    return _as_given(keyed.fold_in(found, number), raw)


def clone(key: Any) -> Any:
    """The key once more."""
    return key


# --- uniform bits, numbers and integers -----------------------------------------------------------
def bits(
    key: Any, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Random integers of an unsigned type."""
    _unsharded("bits", out_sharding)
    kind = _kind("bits", "uint64" if dtype is None else dtype, "u", "an unsigned int")
    return wrap(keyed.bits(_one("bits", key), _shape(shape), kind))


def uniform(
    key: Any, shape: Shape = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0, *,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Uniform on [minval, maxval)."""
    ends = {"low": minval, "high": maxval}
    if any(not isinstance(x, (int, float)) for x in ends.values()):
        ends = {name: unwrap(x, _kind("uniform", dtype)) for name, x in ends.items()}
    return _plain("uniform", keyed.uniform, key, shape, dtype, out_sharding, **ends)


def randint(
    key: Any, shape: Shape, minval: Any, maxval: Any, dtype: Any = None, *,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Integers in [minval, maxval)."""
    _unsharded("randint", out_sharding)
    found, kind = _one("randint", key), canonical(int if dtype is None else dtype)
    if kind.kind not in "iu":
        raise TypeError(f"randint only accepts integer dtypes, got {kind}")
    shape = _common("randint", shape, minval, maxval)
    ends = [unwrap(x) for x in (minval, maxval)]
    whole = dtypes.of(canonical(int))
    ends = [x if x.meta()[1].kind in "iu" else x.to(whole) for x in ends]
    return wrap(keyed.integers(found, shape, *ends, kind))


def bernoulli(
    key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None
) -> Array:
    """True with probability ``p``."""
    _unsharded("bernoulli", out_sharding)
    if mode not in ("high", "low"):
        raise ValueError(f"got {mode=}, expected 'high' or 'low'")
    found, kind = _one("bernoulli", key), kind_of(p)[0]
    if kind.kind not in "fV":
        raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {kind}.")
    shape = _common("bernoulli", shape, p)
    return wrap(keyed.bernoulli(found, unwrap(p, kind), shape, mode == "high"))


def rademacher(
    key: Any, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """-1 or 1."""
    _unsharded("rademacher", out_sharding)
    kind = canonical(int if dtype is None else dtype)
    return wrap(keyed.rademacher(_one("rademacher", key), _shape(shape), kind))


# --- continuous distributions without parameters --------------------------------------------------
def normal(
    key: Any, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Standard normal."""
    _unsharded("normal", out_sharding)
    kind = _kind("normal", dtype, "fVc", "a float or complex")
    return wrap(keyed.normal(_one("normal", key), _shape(shape), kind))


def _sampler(name: str, draw: Callable, text: str) -> Callable[..., Array]:
    def sampler(
        key: Any, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None
    ) -> Array:
        return _plain(name, draw, key, shape, dtype, out_sharding)

    sampler.__name__ = sampler.__qualname__ = name
    sampler.__doc__ = text
    return sampler


cauchy = _sampler("cauchy", keyed.cauchy, "Cauchy's.")
exponential = _sampler("exponential", keyed.exponential, "Exponential with rate 1.")
laplace = _sampler("laplace", keyed.laplace, "Laplace's.")
logistic = _sampler("logistic", keyed.logistic, "Logistic.")
maxwell = _sampler("maxwell", keyed.maxwell, "Maxwell's, of one side.")


def gumbel(
    key: Any, shape: Shape = (), dtype: Any = None, mode: str | None = None, *,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Gumbel's; mode "high" draws twice as many bits."""
    fine = _is_fine(mode)
    return _plain("gumbel", keyed.gumbel, key, shape, dtype, out_sharding, fine=fine)


def _is_fine(mode: str | None) -> bool:
    if mode == "highest":
        raise NotImplementedError("gumbel: mode 'highest' is not here; 'high' and 'low' are")
    if mode not in (None, "high", "low"):
        raise ValueError(f"Must provide valid mode for gumbel got: {mode}")
    return mode == "high"


# --- continuous distributions with parameters -----------------------------------------------------
def _of(
    name: str, draw: Callable, num: int, text: str, safe: bool = True, **how: Any
) -> Callable[..., Array]:
    """The sampler of a distribution of ``num`` parameters, which are called as in ``_NAMES``."""
    names = _NAMES[name].split()

    def sampler(key: Any, *args: Any, out_sharding: Any = None, **named: Any) -> Array:
        given = dict(zip((*names, "shape", "dtype"), args))
        if len(args) > num + 2 or given.keys() & named.keys():
            raise TypeError(f"{name}() got multiple values or too many arguments")
        given |= named
        missing = [n for n in names if n not in given]
        unknown = given.keys() - {*names, "shape", "dtype"}
        if missing or unknown:
            raise TypeError(
                f"{name}() missing {len(missing)} required positional arguments: {missing}"
                if missing else f"{name}() got an unexpected keyword argument {min(unknown)!r}"
            )  # fmt: skip
        params = tuple(given[n] for n in names)
        shape, dtype = given.get("shape"), given.get("dtype")
        return _drawn(name, draw, key, params, shape, dtype, out_sharding, safe, **how)

    sampler.__name__ = sampler.__qualname__ = name
    sampler.__doc__ = text
    return sampler


_NAMES = {
    "beta": "a b", "gamma": "a", "loggamma": "a", "pareto": "b", "t": "df", "chisquare": "df",
    "f": "dfnum dfden", "rayleigh": "scale", "wald": "mean", "triangular": "left mode right",
    "truncated_normal": "lower upper",
}  # fmt: skip

beta = _of("beta", keyed.beta, 2, "Beta numbers of (a, b).")
gamma = _of("gamma", keyed.gamma, 1, "Gamma numbers of shape a.", safe=False)
loggamma = _of(
    "loggamma", keyed.gamma, 1, "Logarithms of gamma numbers.", safe=False, log_space=True
)
pareto = _of("pareto", keyed.pareto, 1, "Pareto's.")
t = _of("t", keyed.student, 1, "Student's t.")
chisquare = _of("chisquare", keyed.chisquare, 1, "χ².")
f = _of("f", keyed.fisher, 2, "F of (dfnum, dfden).")
rayleigh = _of("rayleigh", keyed.rayleigh, 1, "Rayleigh's.")
wald = _of("wald", keyed.wald, 1, "Wald's.")
triangular = _of("triangular", keyed.triangular, 3, "Triangular.")
truncated_normal = _of(
    "truncated_normal", keyed.truncated_normal, 2, "Normal between two bounds.", safe=False
)


def lognormal(
    key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """e to the power of normal numbers."""
    return _drawn("lognormal", keyed.lognormal, key, (sigma,), shape, dtype, out_sharding)


def double_sided_maxwell(
    key: Any, loc: Any, scale: Any, shape: Shape = (), dtype: Any = None
) -> Array:
    """Maxwell's with both signs."""
    found, kind = _one("double_sided_maxwell", key), _kind("double_sided_maxwell", dtype)
    own = np.broadcast_shapes(np.shape(loc), np.shape(scale))
    full = (_shape(shape) or own) + own
    ends = unwrap(loc, kind), unwrap(scale, kind)
    return wrap(keyed.double_sided_maxwell(found, *ends, full, kind))


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Shape = (), dtype: Any = None
) -> Array:
    """Weibull's."""
    found, kind = _one("weibull_min", key), _kind("weibull_min", dtype)
    params = unwrap(scale, kind), unwrap(concentration, kind)
    return wrap(keyed.weibull(found, *params, _shape(shape), kind))


def generalized_normal(
    key: Any, p: Any, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Density proportional to exp(-|x|ᵖ)."""
    power = unwrap(p, _kind("generalized_normal", dtype))
    return _plain(
        "generalized_normal", lambda k, s, d: keyed.generalized_normal(k, power, s, d), key,
        shape, dtype, out_sharding,
    )  # fmt: skip


def ball(
    key: Any, d: int, p: Any = 2, shape: Shape = (), dtype: Any = None, *,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Uniform in the unit ball of the norm Lᵖ."""
    power, d = unwrap(p, _kind("ball", dtype)), index(d)
    return _plain(
        "ball", lambda k, s, kind: keyed.ball(k, d, power, s, kind), key, shape, dtype,
        out_sharding,
    )  # fmt: skip


def orthogonal(
    key: Any, n: int, shape: Shape = (), dtype: Any = None, m: int | None = None, *,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Orthogonal matrices, evenly."""
    n, m = index(n), index(n if m is None else m)
    return _plain(
        "orthogonal", lambda k, s, kind: keyed.orthogonal(k, n, m, s, kind), key, shape, dtype,
        out_sharding,
    )  # fmt: skip


def dirichlet(
    key: Any, alpha: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Dirichlet's of concentrations in the last dimension."""
    _unsharded("dirichlet", out_sharding)
    found, kind = _one("dirichlet", key), _kind("dirichlet", dtype)
    if np.ndim(alpha) < 1:
        raise ValueError(
            f"dirichlet requires alpha.ndim >= 1, got alpha.ndim == {np.ndim(alpha)}"
        )
    full = _common("dirichlet", shape, np.empty(np.shape(alpha)[:-1]))
    return wrap(keyed.dirichlet(found, unwrap(alpha, kind), full, kind))


def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None,
    method: str = "cholesky", *, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Normal vectors of given means and covariances."""
    _unsharded("multivariate_normal", out_sharding)
    found = _one("multivariate_normal", key)
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError("method must be one of {'svd', 'eigh', 'cholesky'}")
    own = result_kind(kind_of(mean), kind_of(cov), (canonical(float), True))[0]
    kind = _kind("multivariate_normal", own if dtype is None else dtype)
    for name, value, least in (("mean", mean, 1), ("cov", cov, 2)):
        if np.ndim(value) < least:
            raise ValueError(
                f"multivariate_normal requires {name}.ndim >= {least}, got {name}.ndim == "
                f"{np.ndim(value)}"
            )
    n, given = np.shape(mean)[-1], np.shape(cov)
    if given[-2:] != (n, n):
        raise ValueError(
            f"multivariate_normal requires cov.shape == (..., n, n) for n={n}, but got cov.shape "
            f"== {given}."
        )
    full = _common("normal", shape, np.empty(np.shape(mean)[:-1]), np.empty(given[:-2]))
    values = unwrap(mean, kind), unwrap(cov, kind)
    return wrap(keyed.multivariate_normal(found, *values, full, kind, method))


# --- counts ---------------------------------------------------------------------------------------
def poisson(
    key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Poisson's."""
    _unsharded("poisson", out_sharding)
    kind = canonical(int if dtype is None else dtype)
    shape = tuple(np.shape(lam)) if shape is None else _shape(shape)
    rate = unwrap(lam, np.dtype(np.float32))
    return wrap(keyed.poisson(_one("poisson", key), rate, shape, kind))


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """How many of ``n`` trials succeed."""
    found, kind = _one("binomial", key), _kind("binomial", dtype)
    own = result_kind(kind_of(p), (canonical(float), True))[0]
    shape = _common("binomial", shape, n, p)
    out = keyed.binomial(found, unwrap(n, own), unwrap(p, own), shape)
    return wrap(out.to(dtypes.of(kind)))


def multinomial(
    key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: Any = 1
) -> Array:
    """Of ``n`` trials, how many had each result."""
    found = _one("multinomial", key)
    own = result_kind(kind_of(n), kind_of(p), (canonical(float), True))[0]
    full = tuple(np.shape(p)) if shape is None else _shape(shape)
    n = ops.broadcast_to(unwrap(n, own), full[:-1])
    out = keyed.multinomial(found, n, ops.broadcast_to(unwrap(p, own), full))
    return wrap(out.to(dtypes.of(canonical(float if dtype is None else dtype))))


def geometric(
    key: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Trials until one succeeds."""
    _unsharded("geometric", out_sharding)
    found, kind = _one("geometric", key), _kind("geometric", dtype, "iu", "an int")
    own = result_kind(kind_of(p), (canonical(float), True))[0]
    shape = _common("geometric", shape, p)
    return wrap(keyed.geometric(found, unwrap(p, own), shape, kind))


# --- choices and orders ---------------------------------------------------------------------------
def categorical(
    key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True,
    mode: str | None = None, *, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Places along ``axis`` by their logits."""
    _unsharded("categorical", out_sharding)
    found, fine, values = _one("categorical", key), _is_fine(mode), unwrap(logits)
    kind, ndim = values.meta()[1], values.ndim
    batch = tuple(np.delete(tuple(values.shape), axis))
    shape = _common("categorical", shape, np.empty(batch))
    front = shape[: len(shape) - len(batch)]
    whole = dtypes.of(canonical(int))
    if replace:
        drawn = list(shape[len(front) :])
        drawn.insert(axis % ndim, values.shape[axis])
        noise = keyed.gumbel(found, (*front, *drawn), kind, fine)
        return wrap(keyed.categorical(values, noise, axis - ndim if axis >= 0 else axis).to(whole))
    num = math.prod(front)
    if num > values.shape[axis]:
        raise ValueError(
            f"Number of samples without replacement ({num}) cannot exceed number of categories "
            f"({values.shape[axis]})."
        )
    noise = keyed.gumbel(found, tuple(values.shape), kind, fine)
    places = keyed.largest(ops.movedim(values, axis, -1), ops.movedim(noise, axis, -1), num)
    return wrap(ops.movedim(places, -1, 0).reshape(shape).to(whole))


def permutation(
    key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None
) -> Array:
    """A range, or an array along ``axis``, shuffled."""
    _unsharded("permutation", out_sharding)
    found, ndim = _one("permutation", key), np.ndim(x)
    values = unwrap(x) if ndim else _range(x, "x must be an integer or at least 1-dimensional")
    if not -max(ndim, 1) <= axis < max(ndim, 1):
        raise ValueError(
            f"axis {axis} is out of bounds for array of dimension {max(ndim, 1)}"
        )
    return wrap(keyed.permutation(found, values, axis % max(ndim, 1), independent))


def _range(x: Any, message: str) -> Any:
    if kind_of(x)[0].kind not in "iu":
        raise TypeError(message)
    return ops.arange(index(x), dtype=dtypes.of(canonical(int)))


def choice(
    key: Any, a: Any, shape: Shape = (), replace: bool = True, p: Any = None, axis: int = 0,
    mode: str | None = None,
) -> Array:  # fmt: skip
    """A sample of an array along ``axis``, or of a range."""
    found, shape = _one("choice", key), _sequence(shape)
    ndim, count = np.ndim(a), math.prod(shape)
    values = unwrap(a) if ndim else None
    axis = axis % ndim if ndim else 0
    num = values.shape[axis] if ndim else index(a)
    if not count:
        return wrap(ops.zeros(shape, dtype=dtypes.of(kind_of(a)[0])))
    if num <= 0:
        raise ValueError("a must be greater than 0 unless no samples are taken")
    if not replace and count > num:
        raise ValueError(
            f"Cannot take a larger sample (size {count}) than population (size {num}) when "
            "'replace=False'"
        )
    if p is None and not replace:
        whole = values if ndim else _range(num, "")
        out = keyed.permutation(found, whole, axis).narrow(axis, 0, count)
    else:
        places = _places(found, num, shape, count, replace, p, mode)
        out = places if not ndim else ops.index_select(values, axis, places.reshape(-1))
    rest = tuple(values.shape) if ndim else ()
    return wrap(out.reshape((*rest[:axis], *shape, *rest[axis + 1 :])))


def _sequence(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, Sequence):
        raise TypeError(
            f"shape argument of jax.random.choice must be a sequence, got {shape}"
        )
    return _shape(shape)


def _places(
    key: Any, num: int, shape: tuple, count: int, replace: bool, p: Any, mode: str | None
) -> Any:
    whole = dtypes.of(canonical(int))
    if p is None:
        ends = (ops.tensor(np.asarray(x, np.int32)) for x in (0, num))
        return keyed.integers(key, shape, *ends, canonical(int))
    if np.shape(p) != (num,):
        raise ValueError(
            "p must be None or a 1D vector with the same size as a.shape[axis]. p has shape "
            f"{np.shape(p)} and a.shape[axis] is {num}."
        )
    kind = result_kind(kind_of(p), (canonical(float), True))[0]
    chances = unwrap(p, kind)
    if replace:
        return keyed.weighted(key, chances, shape).to(whole)
    noise = keyed.gumbel(key, (num,), kind, _is_fine(mode))
    return keyed.largest(ops.log(chances), noise, count).to(whole)

