"""Distributions inside transforms and after each other's transforms: densities, their slopes,
divergences; drawn parameters and values."""

from __future__ import annotations

from peers.generators.draw import Draw

# (name, parameters, values): P positive, R real, U within the unit interval, S a simplex.
FAMILIES = (
    ("Normal", "RP", "R"), ("Laplace", "RP", "R"), ("Cauchy", "RP", "R"), ("Gumbel", "RP", "R"),
    ("LogNormal", "RP", "P"), ("Gamma", "PP", "P"), ("Beta", "PP", "U"), ("Exponential", "P", "P"),
    ("HalfNormal", "P", "P"), ("StudentT", "P", "R"), ("Weibull", "PP", "P"), ("Chi2", "P", "P"),
    ("Kumaraswamy", "PP", "U"), ("InverseGamma", "PP", "P"), ("Pareto", "UU", "P"),
    ("HalfCauchy", "P", "P"), ("FisherSnedecor", "PP", "P"),
)  # fmt: skip
MAPS = """ExpTransform() SigmoidTransform() TanhTransform() AffineTransform(0.5,-2.0)
SoftplusTransform()"""


def program(d: Draw) -> None:
    d.dtypes = ("float64",)
    for _ in range(d.rng.randint(1, 2)):
        d.choice((density, within_vmap, within_vmap, slopes, transformed, divergence))(d)


def _number(d: Draw, kind: str, n: int) -> str:
    low, high = {"R": (-7, 7), "P": (1, 9), "U": (1, 7)}[kind]
    values = [d.rng.randint(low, high) / (8 if kind == "U" else 4) for _ in range(n)]
    return f"T.tensor({values}, dtype=T.float64)"


def _drawn(d: Draw, n: int) -> tuple[str, list[str], str]:
    name, parameters, value = d.choice(FAMILIES)
    given = [d.let(_number(d, kind, n)) for kind in parameters]
    shift = f" + {given[0]}.detach()" if name == "Pareto" else ""
    x = d.let(_number(d, value, n) + shift)
    return name, [g for g in given if g], x or ""


def density(d: Draw) -> None:
    name, given, x = _drawn(d, 3)
    for g in given:
        d.add(f"{g}.requires_grad_()")
    of = f"T.distributions.{name}({', '.join(given)})"
    out = d.let(f"{of}.log_prob({x})", rough=True)
    if out:
        d.add(f"{out}.sum().backward()", keep_errors=0.3)
    asked = ("mean", "variance", "stddev", "mode", "entropy()", f"cdf({x})", "support.event_dim")
    for which in asked:
        if d.chance(0.3) and (name, which) != ("Kumaraswamy", "mode"):  # (nan where it is not)
            d.let(f"{of}.{which}", rough=True, keep_errors=0.3)


def _function(name: str, count: int, of: str = "log_prob(x)") -> tuple[str, str]:
    names = ", ".join("abc"[:count])
    return names, f"T.distributions.{name}({names}).{of}"


def within_vmap(d: Draw) -> None:
    name, given, x = _drawn(d, 3)
    names, text = _function(name, len(given))
    inner = f"lambda {names}, x: {text}"
    around = d.choice(("", "grad", "grad_and_value", "hessian", "jacfwd"))
    call = f"T.func.{around}({inner})" if around else inner
    d.let(f"T.func.vmap({call})({', '.join([*given, x])})", rough=True, keep_errors=0.0)


def slopes(d: Draw) -> None:
    name, given, x = _drawn(d, 2)
    names, text = _function(name, len(given))
    of = f"({x})"
    tangents = ", ".join(f"T.ones_like({g})" for g in given)
    d.let(
        f"T.func.jvp(lambda {names}: {text.replace('(x)', of)}, ({', '.join(given)},), "
        f"({tangents},))",
        rough=True, keep_errors=0.0,
    )  # fmt: skip


def transformed(d: Draw) -> None:
    maps = d.rng.sample(MAPS.split(), d.rng.randint(1, 2))
    text = ", ".join(f"T.distributions.{m}" for m in maps)
    loc, scale = d.let(_number(d, "R", 3)), d.let(_number(d, "P", 3))
    d.add(f"{loc}.requires_grad_()")
    d.add(
        f"m0 = T.distributions.TransformedDistribution(T.distributions.Normal({loc}, {scale}), "
        f"[{text}])"
    )
    x = d.let(_number(d, "R", 3))
    y = d.let(f"T.distributions.ComposeTransform([{text}])({x})", rough=True)
    out = d.let(f"m0.log_prob({y})", rough=True, keep_errors=0.0)
    if out:
        d.add(f"{out}.sum().backward()", keep_errors=0.3)
        d.let(f"m0.cdf({y}.detach())", rough=True, keep_errors=0.0)
    d.let("[m0.event_shape.numel(), m0.support.event_dim, m0.has_rsample]")


def divergence(d: Draw) -> None:
    name, given, _ = _drawn(d, 2)
    other = [d.let(f"{g} * 1.25") for g in given]
    for g in given:
        d.add(f"{g}.requires_grad_()")
    of = [f"T.distributions.{name}({', '.join(map(str, side))})" for side in (given, other)]
    out = d.let(f"T.distributions.kl_divergence({of[0]}, {of[1]})", rough=True, keep_errors=0.3)
    if out and d[out].requires_grad:
        d.add(f"{out}.sum().backward()", keep_errors=0.3)
