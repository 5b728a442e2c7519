"""Programs that write in place inside a transform, over ``t``: disttrain or torch. ``c`` is
captured from outside, ``x`` is the function's input."""

from __future__ import annotations

from typing import Any

import numpy as np


def _quietly(t: Any, write: Any) -> Any:
    with t.no_grad():
        return write()


def _places(t: Any) -> Any:
    return t.tensor([0, 2])


def _set(tensor: Any, index: Any, value: Any) -> None:
    tensor[index] = value


# By methods: the arguments each takes.
METHODS: dict[str, Any] = {
    **dict.fromkeys(
        """abs_ acos_ acosh_ asin_ asinh_ atan_ atanh_ ceil_ cos_ cosh_ deg2rad_ detach_ digamma_
erf_ erfc_ erfinv_ exp2_ exp_ expm1_ exponential_ fix_ floor_ frac_ i0_ lgamma_ log10_ log1p_ log2_
log_ log_normal_ logical_not_ logit_ nan_to_num_ neg_ negative_ normal_ rad2deg_ reciprocal_ relu_
round_ rsqrt_ sgn_ sigmoid_ sign_ sin_ sinc_ sinh_ sqrt_ square_ t_ tan_ tanh_ trunc_ uniform_
zero_""".split(), lambda t, x: (),
    ),
    **dict.fromkeys("""add_ sub_ mul_ div_ fmod_ remainder_ pow_ floor_divide_ fill_ eq_ ne_ lt_ le_
gt_ ge_ clamp_min_ clamp_max_ bernoulli_ geometric_ xlogy_""".split(), lambda t, x: (0.5,)),
    **dict.fromkeys("""copy_ atan2_ hypot_ copysign_ nextafter_ logical_and_ logical_or_
logical_xor_""".split(), lambda t, x: (x,)),
    "addcmul_": lambda t, x: (x, x), "addcdiv_": lambda t, x: (x, x),
    "lerp_": lambda t, x: (x, 0.5), "clamp_": lambda t, x: (0.0, 1.0),
    "cumsum_": lambda t, x: (0,), "cumprod_": lambda t, x: (0,),
    "index_add_": lambda t, x: (0, _places(t), t.ones(2)),
    "index_copy_": lambda t, x: (0, _places(t), t.ones(2)),
    "index_fill_": lambda t, x: (0, _places(t), 1.0),
    "index_put_": lambda t, x: ((_places(t),), t.ones(2)),
    "masked_fill_": lambda t, x: (t.tensor([True, False, True]), 0.0),
    "masked_scatter_": lambda t, x: (t.tensor([True, False, True]), t.ones(3)),
    "scatter_": lambda t, x: (0, _places(t), t.ones(2)),
    "scatter_add_": lambda t, x: (0, _places(t), t.ones(2)),
    "resize_": lambda t, x: (2,), "set_": lambda t, x: (t.ones(3),),
    "squeeze_": lambda t, x: (), "unsqueeze_": lambda t, x: (0,),
    "transpose_": lambda t, x: (0, 0), "swapaxes_": lambda t, x: (0, 0),
    "tril_": None, "triu_": None, "random_": lambda t, x: (3,),
}  # fmt: skip

# Other ways to a captured tensor: refused inside grad, vjp and jvp.
REFUSED: dict[str, Any] = {
    "+=": lambda t, c, x: c.__iadd__(1.0),
    "index": lambda t, c, x: _set(c, 0, 1.0),
    "index, of the input": lambda t, c, x: _set(c, 0, x[0]),
    "index by mask": lambda t, c, x: _set(c, c > 1, 0.0),
    "index by tensor": lambda t, c, x: _set(c, _places(t), x[:2]),
    "view": lambda t, c, x: c.view(-1).add_(1.0),
    "slice": lambda t, c, x: c[:1].add_(1.0),
    "piece": lambda t, c, x: c.split(1)[0].add_(1.0),
    "reshaped": lambda t, c, x: c.reshape(3, 1).mul_(2.0),
    "detached": lambda t, c, x: c.detach().add_(1.0),
    "data": lambda t, c, x: c.data.add_(1.0),
    "no_grad": lambda t, c, x: _quietly(t, lambda: c.add_(1.0)),
    "the same by to()": lambda t, c, x: c.to(t.float32).add_(1.0),
    "relu": lambda t, c, x: t.nn.functional.relu(c, inplace=True),
    "init": lambda t, c, x: t.nn.init.zeros_(c),
    "a counter of batches": lambda t, c, x: t.nn.BatchNorm1d.forward(
        OUTSIDE[t.__name__], t.stack([x, x * 2])
    ),
}
OUTSIDE: dict[str, Any] = {}  # by package: a module made outside

# What may be written: by the function made, its input's, and what PyTorch lets by.
ALLOWED: dict[str, Any] = {
    "clone": lambda t, c, x: c.clone().add_(x),
    "computed": lambda t, c, x: (c * 1).add_(x),
    "zeros": lambda t, c, x: _set(t.zeros(3), 0, x[0]),
    "ones": lambda t, c, x: t.ones(3).mul_(x),
    "empty_like": lambda t, c, x: t.empty_like(c).copy_(x),
    "new_zeros": lambda t, c, x: c.new_zeros(3).copy_(x),
    "full": lambda t, c, x: t.full((3,), 2.0).sub_(x),
    "arange": lambda t, c, x: t.arange(3.0).add_(x),
    "eye": lambda t, c, x: t.eye(3)[0].add_(x),
    "linspace": lambda t, c, x: t.linspace(0, 1, 3).add_(x),
    "tensor": lambda t, c, x: t.tensor([1.0, 2.0, 3.0]).add_(x),
    "from_numpy": lambda t, c, x: t.from_numpy(np.zeros(3, np.float32)).add_(x),
    "zeros, with numbers": lambda t, c, x: t.zeros(3).add_(1.0).view(-1).fill_(2.0),
    "cat": lambda t, c, x: t.cat([c, c]).zero_(),
    "stack": lambda t, c, x: t.stack([c, c])[0].add_(x),
    "where": lambda t, c, x: t.where(c > 1, c, 0.0).add_(x),
    "gathered": lambda t, c, x: c[_places(t)].add_(x[:2]),
    "cast": lambda t, c, x: c.to(t.float64).add_(1.0),
    "sum": lambda t, c, x: c.sum().add_(x[0]),
    "parameter": lambda t, c, x: _quietly(t, lambda: t.nn.Parameter(c.clone()).add_(1.0)),
    "module": lambda t, c, x: t.nn.init.zeros_(t.nn.Linear(2, 2).weight),
    "of the input": lambda t, c, x: (x * 1).add_(c),
    "out=": lambda t, c, x: t.add(t.ones(3), 1, out=c),
    "running statistics": lambda t, c, x: t.nn.functional.batch_norm(
        t.stack([x, x * 2]), c, c, training=True
    ),
    "inner grad": lambda t, c, x: t.func.grad(lambda y: (y * y).sum())(x.detach() * 1).add_(1.0),
    "inner vmap": lambda t, c, x: t.func.vmap(lambda y: (y * 1).add_(1.0))(x).add_(1.0),
}


def programs() -> dict[str, Any]:
    """All that are refused, by name."""
    out = dict(REFUSED)
    for name, given in METHODS.items():
        out[name] = _by_method(name, given)
    return out


def _by_method(name: str, given: Any) -> Any:
    if given is None:
        return lambda t, c, x: getattr(c.view(1, 3), name)()
    return lambda t, c, x: getattr(c, name)(*given(t, x))


def _of(t: Any, write: Any, c: Any) -> Any:
    def f(x: Any) -> Any:
        write(t, c, x)
        return (x * x).sum()

    return f


TRANSFORMS: dict[str, Any] = {
    "grad": lambda t, f, x: t.func.grad(f)(x),
    "vjp": lambda t, f, x: t.func.vjp(f, x)[0],
    "jvp": lambda t, f, x: t.func.jvp(f, (x,), (x,))[1],
    "jacrev": lambda t, f, x: t.func.jacrev(f)(x),
    "grad of grad": lambda t, f, x: t.func.grad(lambda y: t.func.grad(f)(y).sum())(x),
    "vmap of grad": lambda t, f, x: t.func.vmap(t.func.grad(f), randomness="different")(x[None]),
}


def run(t: Any, transform: str, write: Any) -> Any:
    """What the transform of a function that writes gives, or the exception."""
    OUTSIDE[t.__name__] = t.nn.BatchNorm1d(3)
    x, c = t.tensor([0.5, 1.5, 2.0]), t.tensor([1.0, 2.0, 3.0])
    try:
        return TRANSFORMS[transform](t, _of(t, write, c), x)
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        return error
