"""Drawn programs of many of Python's forms (closures, generators, decorators, classes, contexts,
recursion, what is shared and replaced), whose sizes and plain numbers change, by their source."""

from __future__ import annotations

import contextlib
import functools
import linecache
import math
import operator
import random
import re
import sys
import types
from typing import Any

import numpy as np

import disttrain as dt

HEAD = """\
import contextlib, dataclasses, decimal, fractions, functools, itertools, math, operator
import numpy as np
import disttrain as dt
import disttrain.nn.functional as F
log = []
"""

# Definitions, each with expressions that use them: of ``x`` (two dimensions), an int ``n`` and a
# float ``s``.
PARTS: list[tuple[str, list[str]]] = [
    ("def closed(k):\n    def inner(t):\n        return t * k + len(t)\n    return inner\n",
     ["closed(n)(x)", "closed(s)(x)", "closed(x.shape[0])(x)"]),
    ("def default(t, a=3, *, b=0.5, **more):\n    return t * a - b + sum(more.values())\n",
     ["default(x)", "default(x, n)", "default(x, b=s)", "default(x, **{'b': n, 'c': s})",
      "default(*[x, s])"]),
    ("def halves(t):\n    done = 0\n    try:\n        for part in t.chunk(2):\n"
     "            done += len(part)\n            yield part * done\n"
     "    finally:\n        log.append(done)\n",
     ["dt.cat(list(halves(x)))", "next(halves(x))", "dt.cat([*halves(x), x])",
      "sum(p.sum() for p in halves(x)) + x"]),
    ("def counted(t, n):\n    count = 0\n    def more():\n        nonlocal count\n"
     "        count += len(t)\n        return count\n    more()\n"
     "    return t * more() + (count if n > 3 else 0)\n",
     ["counted(x, n)", "counted(x, len(x))"]),
    ("def twice(f):\n    @functools.wraps(f)\n    def run(*args, **kwargs):\n"
     "        return f(f(*args, **kwargs), **kwargs)\n    return run\n"
     "@twice\ndef scaled(t, by=2):\n    return t * float(by) / len(t)\n",
     ["scaled(x)", "scaled(x, by=n)", "scaled(x, by=s)", "scaled.__wrapped__(x, n)"]),
    ("class Slotted:\n    __slots__ = ('w', 'n')\n    def __init__(self, w, n):\n"
     "        self.w, self.n = w, n\n    def __call__(self, t):\n        return t * self.w + "
     "self.n\n"
     "    @property\n    def both(self):\n        return self.w * self.n\n"
     "    @classmethod\n    def of(cls, n):\n        return cls(n, int(n))\n"
     "    @staticmethod\n    def root(n):\n        return math.sqrt(abs(n))\nslotted = "
     "Slotted(1.5, 2)\n",
     ["Slotted(s, n)(x)", "slotted(x)", "x * Slotted(n, s).both", "Slotted.of(s * 10)(x)",
      "x + Slotted.root(n)", "x * slotted.both + len(x)"]),
    ("@dataclasses.dataclass\nclass Data:\n    a: int\n    b: float = 0.5\n"
     "    def run(self, t):\n        return t * self.a + self.b\ndata = Data(2)\n"
     "@dataclasses.dataclass(frozen=True)\nclass Frozen:\n    a: float\n",
     ["Data(n).run(x)", "Data(n, s).run(x)", "data.run(x)", "x * Frozen(s).a",
      "dataclasses.replace(data, a=n).run(x)", "x + (1 if Frozen(s) == Frozen(0.5) else 2)",
      "x * {Frozen(s): 2.0}[Frozen(s)]"]),
    ("def down(t, k):\n    return t if k <= 0 else down(t * 0.5 + len(t), k - 1)\n",
     ["down(x, 3)", "down(x, min(n, 4))", "down(x, len(x) % 3)"]),
    ("half = functools.partial(operator.mul, 0.5)\n"
     "added = functools.partial(lambda k, t: t + k, 3)\n",
     ["half(x)", "added(x)", "functools.partial(added.func, n)(x)",
      "functools.partial(lambda t, k: t * k, k=s)(x)", "half(n) * x"]),
    ("@functools.lru_cache(maxsize=None)\ndef table(k):\n    return k * 0.25 + 1\n"
     "@functools.cache\ndef kinds(k):\n    return type(k).__name__\n",
     ["x * table(n)", "x + table(s)", "x * table(len(x))", "x + len(kinds(n))",
     "x + len(kinds(s))"]),
    ("k = 10\n", ["x + sum([k * i for i in range(3) for k in (n,)]) + k",
     "dt.stack([row * i for i, row in enumerate(x)])",
     "x + sum({i: n * i for i in range(3)}.values())",
     "x * [f(2) for f in [lambda q, m=m: q * m for m in (n, s)]][1]",
     "x + max(i * s for i in (1, 2))", "x + (m := n * 2) - m / 3"]),
    ("def caught(t, n):\n    try:\n        if n > 5:\n            raise KeyError(n)\n"
     "        return t * n\n    except KeyError as e:\n        return t - e.args[0]\n"
     "    finally:\n        log.append('left')\n",
     ["caught(x, n)", "caught(x, s)", "caught(x, len(x))"]),
    ("@contextlib.contextmanager\ndef inside(k):\n    log.append('in')\n    try:\n"
     "        yield k * 2\n    finally:\n        log.append('out')\n"
     "def within(t, k):\n    with inside(k) as m:\n        return t * m\n",
     ["within(x, n)", "within(x, s)", "within(x, x.shape[1])"]),
    ("def shared(t):\n    return t * len(t) + int(3.7) + math.floor(2.5)\n",
     ["shared(x)", "shared(x[:2])"]),
    ("def others(n, s):\n    return fractions.Fraction(int(n), 3), decimal.Decimal(str(s))\n",
     ["x * float(others(n, s)[0])", "x * float(others(n, s)[1])",
      "x + float(fractions.Fraction(s).limit_denominator(10))"]),
    ("", ["x * n", "x / n", "x - s", "n / x", "s - x", "x ** n", "x ** s", "s ** x", "x % n",
    "x // s",
     "x.clamp(min=s)", "x.clamp(-s, s)", "dt.where(x > s, x, n)", "dt.full_like(x, s)",
     "x.add(x, alpha=s)",
     "x.add(x, alpha=n)", "dt.lerp(x, x * 2, s)", "x.fmod(n)", "(x > s) * n",
     "dt.full((len(x), 1), s) + x",
     "x * dt.tensor(s)", "x * dt.tensor([n, s]).sum()", "F.leaky_relu(x, s)", "F.elu(x, s)",
     "x + n * s",
     "x * (n == 1)", "x * (s == s)", "x * math.copysign(1.0, s)", "x + round(s, 2)",
     "x + round(n, -1)",
     "x * (-s)", "x * abs(s)", "x + divmod(n, 3)[1]", "x * f'{s}'.count('5')", "x + len(str(n))",
     "x * (n & 3)", "x * (n ^ 1)", "x + (n >> 1)", "x + ~n", "x * float(n)", "x * int(s)",
     "x * bool(s)", "x + n.bit_length()", "x * s.is_integer()", "x * s.as_integer_ratio()[0]",
     "x + hash(s) % 7", "x * isinstance(n, bool)", "x * (type(n) is int)", "x * (type(s) == float)",
     "x + operator.index(n)", "x * min(n, s)", "x * max(len(x), n)", "x * math.isnan(s)",
     "x + (0 if s else 1)", "x * (n or 3)", "x + (s and 2)", "x.long() * n",
     "x.long() // max(n, 1)",
     "(x > 0) & (n > 2)", "x.double() * s", "x.half() * s", "x + complex(s, n)", "x.int() + n",
     "x.pow(2) * n ** 2", "dt.arange(len(x)).unsqueeze(1) * n + x", "x.sum() * s + x[0, 0] * n",
     "F.pad(x, (0, n % 4))", "x[:, : n % 3 + 1]", "x.roll(n, 0)", "x.repeat(n % 3 + 1, 1)",
     "x * np.float32(s)", "x * np.float64(s)", "x + np.int64(n)", "x * np.sqrt(abs(s))",
     "F.dropout(x, 0.5) * s", "x + dt.rand(len(x), 1) * s", "x.round(decimals=n % 3)",
     "dt.addcmul(x, x, x, value=s)", "F.softplus(x, beta=max(s, 1))", "x.mul(s).add_(n)",
     "F.gelu(x) * s",
     "x.unsqueeze(0).expand(n % 3 + 1, -1, -1).sum(0)",
     "dt.linspace(0, s, len(x)).unsqueeze(1) + x",
     "dt.heaviside(x, dt.tensor(s))", "x.nan_to_num(s)", "x.masked_fill(x > 0, s)",
     "x.masked_fill(x < 0, n)",
     "x.copysign(s)", "dt.maximum(x, dt.tensor(float(n)))", "dt.atan2(x, dt.full_like(x, s))",
     "x.float_power(s)", "dt.xlogy(x, s)", "x.true_divide(n)", "dt.remainder(x, s)",
     "x.div(s, rounding_mode='floor')", "x.eq(s)", "x.ne(n) * 1.0",
     "x.index_fill(0, dt.tensor([0]), s)"]),
]  # fmt: skip

NUMBERS: list[Any] = [
    0, 1, 2, 3, 4, 5, 7, 8, 100, -3, True, False, 1 << 40, 0.0, -0.0, 1.0, 0.5, 2.0, 3.5, -1.5, 2.5,
    float("nan"), float("inf"), 1e-300, 1e300, np.float32(0.5), np.float64(0.5), np.int64(4),
    np.bool_(True), 0.1, 0.3, 1 << 70,
]  # fmt: skip
INTS = [2, 3, 4, 5, 6, 7, 9, 12]
FLOATS = [0.5, 1.5, 0.25, -0.75, 3.0, 0.1, 2.0, -0.0]
ROWS = [1, 2, 3, 4, 5, 8, 9]
CHANGES = [
    "m.shared = lambda t: t * 3 + len(t)", "m.len = len", "m.slotted.n = {n}", "m.data.b = {s}",
    "m.k = {n}", "m.len = lambda t: 2", "m.half = functools.partial(operator.mul, {s})",
    "m.default.__defaults__ = ({n},)", "m.default.__kwdefaults__ = {{'b': {s}}}",
    "m.down.__code__ = (lambda t, k: t - len(t) + k).__code__", "m.slotted = m.Slotted({n}, {s})",
    "m.table.cache_clear()", "m.int = lambda v: 5", "m.math = types.SimpleNamespace(**vars(math))",
    "vars(m).pop('len', None)",
]  # fmt: skip


def source(rng: random.Random) -> str:
    """One program: ``step(x, n, s)``, and ``other`` that shares its functions."""
    chosen = rng.sample(PARTS[:-1], rng.randint(1, 3)) + PARTS[-1:]
    uses = [u for _, uses in chosen[:-1] for u in uses]
    loose = PARTS[-1][1]

    def body() -> list[str]:
        chosen = [uses if rng.random() < 0.6 else loose for _ in range(rng.randint(1, 4))]
        return [f"    x = {rng.choice(among)}" for among in chosen]

    ends = rng.choice(["return x", "return x, n, s", "return {'x': x, 'm': n * 2, 's': s + 1}",
                       "return [x.sum(), len(x), n / 3]"])  # fmt: skip
    lines = [HEAD, *(d for d, _ in chosen)]
    for name in ("step", "other"):
        lines += [f"def {name}(x, n, s=0.5):", *body(), f"    {ends}"]
    return "\n".join(lines) + "\n"


def loaded(text: str, seed: int, compiled: bool) -> types.ModuleType:
    """The program as a module."""
    m = types.ModuleType(f"drawn_{seed}_{compiled}")
    sys.modules[m.__name__] = m  # (dataclasses look there)
    name = f"/drawn/python_{seed}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), vars(m))  # noqa: S102
    return m


LAYOUTS = {
    "plain": lambda x: x[:, :4].clone(),
    "turned": lambda x: x[:, :4].T.contiguous().T,
    "double": lambda x: x[:, :4].double().clone(),
    "strided": lambda x: x[:, ::2],
}


def calls(rng: random.Random) -> list[tuple]:
    """Rows, both numbers, a change before the call, the function, whether there are gradients, a
    layout, and how the numbers are given."""
    wild, grad = rng.random() < 0.4, rng.random() < 0.4
    rows = [rng.choice(ROWS) for _ in range(rng.choice([1, 2, 5]))]
    layout, found = rng.choice(["plain", *LAYOUTS]), []
    for _ in range(rng.randint(5, 9)):
        n = rng.choice(NUMBERS if wild and rng.random() < 0.5 else INTS)
        s = rng.choice(NUMBERS if wild and rng.random() < 0.5 else FLOATS)
        change = rng.choice(CHANGES).format(n=rng.choice(INTS), s=rng.choice(FLOATS))
        change = change if rng.random() < 0.15 else ""
        which, how = rng.choice(["step"] * 3 + ["other"]), rng.choice(["in order", "named", "one"])
        found.append((rng.choice(rows), n, s, change, which, grad, layout, how))
    return found


def codes(m: types.ModuleType) -> list:
    """The code objects of all of its functions, as they are."""
    return [
        f.__code__ for v in vars(m).values() for f in (v, *(vars(v).values() if type(v) is type
        else ()))
        if isinstance(f, types.FunctionType)
    ]  # fmt: skip


def ran(seed: int, compiled: bool) -> tuple[list, str]:
    """What can be seen of all calls; how often it was captured."""
    rng = random.Random(seed)
    m, found = loaded(source(rng), seed, compiled), list[Any]()
    sequence, dynamic = calls(rng), rng.choice([None, None, True, False])
    steps = {name: getattr(m, name) for name in ("step", "other")}
    if compiled:
        steps = {name: dt.compile(fn, dynamic=dynamic) for name, fn in steps.items()}
    dt.manual_seed(seed)
    for rows, n, s, change, which, grad, layout, how in sequence:
        with contextlib.suppress(AttributeError):  # (the program may not have that part)
            exec(change, {"m": m, **_SPACE})  # noqa: S102
        x = LAYOUTS[layout](dt.randn(rows, 8, generator=dt.Generator().manual_seed(rows)))
        x = x.requires_grad_(grad)
        before = codes(m)
        try:
            found.append(_seen(_given(steps[which], x, n, s, how), x))
        except Exception as error:
            deep = isinstance(error, RecursionError)  # (which line is the last is not told)
            found.append((type(error).__name__, "" if deep else str(error)[:200]))
        found.append(repr(m.log))
        if not all(a is b for a, b in zip(before, codes(m), strict=True)):
            found.append("functions have other code")
    told = [fn.explain() for fn in steps.values()] if compiled else []
    return [*found, _shown(dt.rand(1))], "\n".join(told)


_SPACE = {"functools": functools, "operator": operator, "types": types, "math": math}


def _given(fn: Any, x: Any, n: Any, s: Any, how: str) -> Any:
    if how == "named":
        return fn(x, s=s, n=n)
    return fn(x, n, s) if how == "in order" else fn(x, n)


def _seen(result: Any, x: Any) -> tuple:
    parts = list(result.values()) if isinstance(result, dict) else result
    parts = list(parts) if isinstance(parts, (tuple, list)) else [parts]
    with_graph = [v for v in parts if isinstance(v, dt.Tensor) and v.requires_grad]
    with_graph = [v for v in with_graph if v.is_floating_point()]
    if with_graph:
        sum(v.sum() for v in with_graph).backward()
    return type(result).__name__, [_shown(v) for v in (*parts, x.grad)]


def _shown(v: Any) -> tuple:
    if isinstance(v, dt.Tensor):
        laid = str(v.dtype), tuple(v.shape), v.stride(), v.requires_grad
        return *laid, v.detach().numpy().tobytes()
    return type(v).__name__, repr(v)


def difference(seed: int) -> tuple[str | None, int]:
    """Where the compiled program and the eager one part, if they do; how often it was captured."""
    (plain, _), (other, told) = ran(seed, False), ran(seed, True)
    count = sum(int(n) for n in re.findall(r"(\d+) captured, ", told))
    for i, (a, b) in enumerate(zip(plain, other, strict=True)):
        if a != b:
            rng = random.Random(seed)
            text = source(rng).removeprefix(HEAD)
            return f"{text}{calls(rng)}\nitem {i}: {a!r:.300}\n{b!r:.300}\n{told:.900}", count
    return None, count
