"""Elementwise functions, broadcasting, promotion: all dtypes, tensors and numbers."""

from __future__ import annotations

from peers.generators.draw import ALL, Draw, floating, smooth
from peers.generators.finish import backward, hook

UNARY = """abs absolute neg negative positive square sign sgn reciprocal sqrt exp expm1 exp2
log1p sin cos tan tanh sinh cosh asinh atan sigmoid erf erfc relu logical_not isnan isinf
isfinite isposinf isneginf signbit frac nan_to_num bitwise_not conj real_if angle deg2rad
rad2deg log log2 log10 rsqrt acos asin acosh atanh lgamma digamma erfinv logit sinc i0
clone""".split()
JUMPS = "ceil floor round trunc".split()
BINARY = """add sub mul div true_divide multiply subtract divide maximum minimum atan2 pow fmod
remainder floor_divide logaddexp logaddexp2 hypot copysign xlogy fmax fmin eq ne lt le gt ge
logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor heaviside nextafter ldexp
gcd lcm bitwise_left_shift bitwise_right_shift float_power isclose rsub arctan2 greater
less_equal not_equal""".split()
OPERATORS = "+ - * / // % ** == != < <= > >= & | ^ << >>".split()
STEPWISE = {"fmod", "remainder", "floor_divide", "//", "%", "eq", "ne", "lt", "le", "gt", "ge",
"==", "!=",
            "<", "<=", ">", ">=", "heaviside", "nextafter", "isclose", "greater", "less_equal",
            "not_equal",
            "copysign"}  # fmt: skip
ROUGH = {"abs", "absolute", "neg", "negative", "square", "relu", "logical_not", "clone", "sign",
"add",
         "sub", "mul", "div", "+", "-", "*", "/", "maximum", "minimum"}  # fmt: skip


def program(d: Draw) -> None:
    """Two to four leaves of any dtype, then six to twelve operations."""
    d.dtypes = ALL if d.chance(0.7) else ("float32", "float64")
    base = d.shape(0, 3)
    for _ in range(d.rng.randint(2, 4)):
        d.leaf(d.fitting(base) if d.chance(0.8) else base)
    for _ in range(d.rng.randint(4, 10)):
        d.choice((unary, binary, binary, operator, operator, inplace, ternary, convert, made))(d)
    if d.chance(0.2):
        hook(d)
    backward(d)


def positive(d: Draw, x: str) -> bool:
    return x not in d.rough and not d[x].is_complex() and bool((d[x] > 0).all())


def unary(d: Draw) -> None:
    name = d.choice(UNARY + JUMPS)
    x = d.exact(floating) if name in JUMPS else d.pick()
    if x is None:
        return
    if name in ("digamma", "lgamma") and not positive(d, x):
        return  # values at poles are about rounding
    if name == "round" and d.chance(0.3):
        d.let(f"{x}.round(decimals={d.choice([0, 1, -1])})")
        return
    d.let(d.call(name, x), rough=name not in ROUGH and name not in JUMPS)


def other(d: Draw, x: str, stepwise: bool) -> str:
    """The second operand: an existing tensor, a new one that fits, or a number."""
    kind = d.rng.random()
    if kind < 0.35:
        return repr(d.number(complex_too=True))
    if kind < 0.6:
        found = d.exact() if stepwise else d.pick()
        if found is not None:
            return found
    return d.leaf(d.fitting(d[x].shape))


def odd_power(d: Draw, x: str, y: str) -> bool:
    """Complex powers of 0, of which the peer's gradients are nan; numbers as powers of masks."""
    if y[0] != "v":
        return d[x].dtype == d.peer.bool
    return (d[x].is_complex() or d[y].is_complex()) and not bool((d[x] * d[y]).all())


def binary(d: Draw) -> None:
    name = d.choice(BINARY)
    stepwise = name in STEPWISE
    x = d.exact() if stepwise else d.pick()
    if x is None or not d.has(name):
        return
    y = other(d, x, stepwise)
    if "pow" in name and odd_power(d, x, y):
        return
    extra = ""
    if name in ("add", "sub", "subtract", "rsub") and d.chance(0.3):
        extra = f", alpha={d.number(complex_too=True)!r}"
    if name == "div" and d.chance(0.4):
        mode = d.choice(("floor", "trunc", None))
        extra = f", rounding_mode={mode!r}"
        if mode and (x in d.rough or y in d.rough):
            return
    text = d.call(name, x, f"{y}{extra}")
    if d.chance(0.05) and y[0] != "v":
        text = f"T.{name}({y}, {x}{extra})"
    d.let(text, rough=name not in ROUGH)


def operator(d: Draw) -> None:
    sign = d.choice(OPERATORS)
    stepwise = sign in STEPWISE
    x = d.exact() if stepwise else d.pick()
    if x is None:
        return
    y = other(d, x, stepwise)
    if sign == "**" and odd_power(d, x, y):
        return
    d.let(f"{y} {sign} {x}" if d.chance(0.4) else f"{x} {sign} {y}", rough=sign not in ROUGH)


def inplace(d: Draw) -> None:
    """``x += y`` and x.mul_(y), on leaves too (that raises when they want a gradient)."""
    x = d.pick(lambda x: not (x.requires_grad and x.is_leaf) or d.chance(0.1))
    if x is None:
        return
    y = other(d, x, stepwise=False)
    kind = d.rng.random()
    if kind < 0.5:
        done = d.add(f"{x} {d.choice(('+', '-', '*', '/'))}= {y}")
    elif kind < 0.8:
        name = d.choice(
            "add_ sub_ mul_ div_ copy_ pow_ clamp_min_ maximum_ eq_ logical_and_".split()
        )
        if name in ("eq_", "logical_and_") and (d[x].requires_grad or y[0] == "v"):
            return  # the peer would have booleans require a gradient
        done = d.has(f"Tensor.{name}") and d.add(f"{x}.{name}({y})")
    else:
        name = d.choice(
            "neg_ sin_ tanh_ sigmoid_ abs_ square_ relu_ zero_ clamp_ sqrt_ exp_".split()
        )
        arguments = "-1, 1.5" if name == "clamp_" else ""
        done = d.add(f"{x}.{name}({arguments})")
    if done:
        d.rough.update(n for n in d.tensors() if shares(d, n, x))


def shares(d: Draw, a: str, b: str) -> bool:
    return d[a].untyped_storage().data_ptr() == d[b].untyped_storage().data_ptr()


def ternary(d: Draw) -> None:
    x = d.pick()
    if x is None:
        return
    kind = d.rng.random()
    if kind < 0.3:
        low, high = (
            d.choice((repr(d.number()), "None", d.leaf(d.fitting(d[x].shape)))) for _ in "ab"
        )
        d.let(
            f"{x}.clamp({low}, {high})" if d.chance(0.5) else f"T.clamp({x}, min={low}, max={high})"
        )
    elif kind < 0.6:
        c = d.exact(lambda x: str(x.dtype) == "torch.bool") or d.leaf(d.fitting(d[x].shape), "bool")
        a, b = (x, other(d, x, False)) if d.chance(0.5) else (other(d, x, False), x)
        d.let(f"T.where({c}, {a}, {b})")
    else:
        y, z = (d.pick(smooth) if d.chance(0.5) else d.leaf(d.fitting(d[x].shape)) for _ in "ab")
        if y is None or z is None:
            return
        name = d.choice("addcmul addcdiv lerp".split())
        extra = f", value={d.number()}" if name != "lerp" and d.chance(0.5) else ""
        third = repr(d.number()) if name == "lerp" and d.chance(0.5) else z
        d.let(f"T.{name}({x}, {y}, {third}{extra})", rough=True)


def convert(d: Draw) -> None:
    """Another dtype; what does not fit in it is undefined, and not asked for."""
    x = d.exact()
    if x is None:
        return
    name = d.choice(ALL)
    if smooth(d[x]) and name.startswith(("uint", "int")):
        if d[x].is_complex() or not bool((d[x].detach().abs() < 100).all()):
            return
        if name == "uint8" and bool((d[x].detach() < 0).any()):
            return
    method = {"float32": "float", "float64": "double", "float16": "half", "int64": "long"}.get(name)
    forms = [f"{x}.to(T.{name})", f"{x}.type(T.{name})"] + ([f"{x}.{method}()"] if method else [])
    d.let(d.choice(forms))
    if d.chance(0.2):
        y = d.pick()
        d.let(d.choice((f"{x}.type_as({y})", f"T.result_type({x}, {y})", f"{x}.to({y})")))


def made(d: Draw) -> None:
    """Tensors made by functions rather than of literals."""
    x, n = d.pick(), d.number
    texts = [
        f"T.arange({d.rng.randint(-3, 3)}, {d.rng.randint(3, 6)}, {d.choice((1, 2, 0.5, 1.5))})",
        f"T.full({d.shape()}, {n(True)!r})",
        f"T.linspace({n()}, {n()}, {d.rng.randint(1, 6)})",
        f"T.eye({d.rng.randint(1, 4)}, {d.rng.randint(1, 4)})",
        f"T.full_like({x}, {n(True)!r})",
        f"T.ones_like({x})",
        f"{x}.new_full((2, 3), {n()!r})",
        f"T.tensor({n(True)!r})",
        f"T.tensor([{n(True)!r}, {n(True)!r}])",
        f"T.zeros({d.shape()}, dtype=T.{d.choice(ALL)})",
    ]
    d.let(d.choice(texts))
