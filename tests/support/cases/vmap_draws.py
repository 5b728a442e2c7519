"""Every random operation as a function of one argument, over ``t``: disttrain or torch."""

from __future__ import annotations

from typing import Any

DRAWS: dict[str, Any] = {
    "normal, mean": lambda t, p: t.normal(p, 1.0),
    "normal, std": lambda t, p: t.normal(0.0, p),
    "normal, both": lambda t, p: t.normal(p, p),
    "normal, size": lambda t, p: t.normal(0.0, 1.0, (3,)),
    "bernoulli": lambda t, p: t.bernoulli(p),
    "bernoulli, number": lambda t, p: t.bernoulli(p, 0.5),
    "poisson": lambda t, p: t.poisson(p * 10),
    "multinomial": lambda t, p: t.multinomial(p, 2),
    "multinomial again": lambda t, p: t.multinomial(p, 5, replacement=True),
    "dropout": lambda t, p: t.nn.functional.dropout(p, 0.5),
    "alpha_dropout": lambda t, p: t.nn.functional.alpha_dropout(p, 0.5, training=True),
    "dropout1d": lambda t, p: t.nn.functional.dropout1d(p.view(1, 3, 1), 0.5),
    "rand_like": lambda t, p: t.rand_like(p),
    "randn_like": lambda t, p: t.randn_like(p),
    "randint_like": lambda t, p: t.randint_like(p, 10),
    "rand": lambda t, p: t.rand(3),
    "randn": lambda t, p: t.randn(3),
    "randint": lambda t, p: t.randint(0, 10, (3,)),
    "randperm": lambda t, p: t.randperm(5),
    "gumbel_softmax": lambda t, p: t.nn.functional.gumbel_softmax(p),
    "uniform_": lambda t, p: (p * 1).uniform_(),
    "normal_": lambda t, p: (p * 1).normal_(),
    "exponential_": lambda t, p: (p * 1).exponential_(),
    "cauchy_": lambda t, p: (p * 1).cauchy_(),
    "geometric_": lambda t, p: (p * 1).geometric_(0.5),
    "log_normal_": lambda t, p: (p * 1).log_normal_(),
    "random_": lambda t, p: (p * 1).random_(1000),
    "bernoulli_": lambda t, p: (p * 1).bernoulli_(0.5),
    "bernoulli_, tensor": lambda t, p: (p * 1).bernoulli_(p),
    "made inside": lambda t, p: t.zeros(3).uniform_(),
}
MODES = ("error", "same", "different")


def run(t: Any, name: str, mode: str, batched: bool) -> Any:
    """Whether all of 24 examples got the same: True or False; or the exception."""
    draw, count = DRAWS[name], 24
    try:
        if batched:
            rows = t.full((count, 3), 0.45)
            out = t.func.vmap(lambda p: draw(t, p), randomness=mode)(rows)
        else:
            whole = t.full((3,), 0.45)
            examples = t.arange(float(count))
            out = t.func.vmap(lambda i: draw(t, whole) * 1.0, randomness=mode)(examples)
    except RuntimeError as error:
        return error
    return bool((out == out[:1]).all())
