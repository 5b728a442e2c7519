"""Scalar expressions: what an elementwise function computes, as data.

    from disttrain.backends.expr import exp, var
    silu = var("x") / (1 + exp(-var("x")))

An ``Expr`` is immutable, hashable and compares by structure (so ``==`` means "the same
expression"; the element comparison is ``eq``). Its leaves are variables and constants. A constant
has no type of its own: it takes the type of what it meets. This file knows no array, no code
generator and imports nothing: ``interpret.py`` evaluates expressions by numpy, ``backends/llvm``
turns them into machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

# The function names that every evaluator must know, by number of arguments.
UNARY = (
    "neg abs exp log log1p expm1 tanh erf sqrt rsqrt sigmoid sin cos floor ceil isnan not".split()
)
BINARY = "add sub mul div pow max min lt le gt ge eq ne and or".split()
TERNARY = "where fma".split()
COMPARISONS = frozenset("lt le gt ge eq ne and or not isnan".split())


# Powers that are products, of numbers, arrays and expressions alike (PyTorch's are these, too).
POWERS: dict[float, Callable[[Any], Any]] = {
    2.0: lambda a: a * a,
    3.0: lambda a: a * a * a,
    -1.0: lambda a: 1.0 / a,
    -2.0: lambda a: 1.0 / (a * a),
}


class Expr:
    """One node: ``op`` applied to ``args``; ``attr`` is a name, a constant or a type name."""

    __slots__ = ("_hash", "args", "attr", "op")

    op: str
    args: tuple[Expr, ...]
    attr: Any
    _hash: int

    def __init__(self, op: str, args: tuple[Expr, ...] = (), attr: object = None) -> None:
        set_ = object.__setattr__
        set_(self, "op", op)
        set_(self, "args", args)
        set_(self, "attr", attr)
        set_(self, "_hash", hash((op, args, attr, type(attr))))

    def __setattr__(self, name: str, value: str) -> None:
        raise AttributeError("an Expr is immutable")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expr) or self._hash != other._hash:
            return False
        same = self.op == other.op and type(self.attr) is type(other.attr)
        return same and repr(self.attr) == repr(other.attr) and self.args == other.args

    def __repr__(self) -> str:
        if self.op == "var":
            return self.attr
        if self.op == "const":
            return repr(self.attr)
        inside = [repr(a) for a in self.args]
        if self.attr is not None:
            inside.append(repr(self.attr))
        return f"{self.op}({', '.join(inside)})"

    def __bool__(self) -> bool:
        raise TypeError(
            "an expression has no truth value: it stands for every element of an array. "
            "Use where(condition, a, b) in place of if"
        )

    def __add__(self, o: Expr | float) -> Expr:
        return _binary("add", self, o)

    def __radd__(self, o: float) -> Expr:
        return _binary("add", o, self)

    def __sub__(self, o: Expr | float) -> Expr:
        return _binary("sub", self, o)

    def __rsub__(self, o: float) -> Expr:
        return _binary("sub", o, self)

    def __mul__(self, o: Expr | float) -> Expr:
        return _binary("mul", self, o)

    def __rmul__(self, o: float) -> Expr:
        return _binary("mul", o, self)

    def __truediv__(self, o: Expr | int) -> Expr:
        return _binary("div", self, o)

    def __rtruediv__(self, o: float) -> Expr:
        return _binary("div", o, self)

    def __pow__(self, o: Expr | float) -> Expr:
        return pow(self, o)

    def __rpow__(self, o: float) -> Expr:
        return pow(o, self)

    def __neg__(self) -> Expr:
        return Expr("neg", (self,))

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return Expr("abs", (self,))

    def __lt__(self, o: Expr | float) -> Expr:
        return _binary("lt", self, o)

    def __le__(self, o: Expr | int) -> Expr:
        return _binary("le", self, o)

    def __gt__(self, o: Expr | float) -> Expr:
        return _binary("gt", self, o)

    def __ge__(self, o: Expr | int) -> Expr:
        return _binary("ge", self, o)

    def __and__(self, o: Expr) -> Expr:
        return _binary("and", self, o)

    def __or__(self, o: Expr) -> Expr:
        return _binary("or", self, o)

    def __invert__(self) -> Expr:
        return Expr("not", (self,))


def var(name: str) -> Expr:
    """A named leaf: an array's element, a scalar, or the result of an earlier reduction."""
    return Expr("var", (), name)


def const(value: bool | int | float) -> Expr:
    """A Python number as a leaf."""
    if not isinstance(value, (bool, int, float)):
        value = value.item()
    return Expr("const", (), value)


def index() -> Expr:
    """The position along the inner axis, as int64."""
    return Expr("index")


def load(array: str, at: Any) -> Expr:
    """Element ``at`` (a row value) of the current row of ``array``; nan where out of range."""
    return Expr("load", (as_expr(at),), array)


def as_expr(value: Expr | float) -> Expr:
    """``value`` itself if it is an expression, else a constant."""
    return value if isinstance(value, Expr) else const(value)


def _binary(op: str, a: Expr | float, b: Expr | float) -> Expr:
    return Expr(op, (as_expr(a), as_expr(b)))


def _unary_function(op: str, text: str) -> Callable[[Any], Expr]:
    def function(a: Expr) -> Expr:
        return Expr(op, (as_expr(a),))

    function.__name__ = function.__qualname__ = op
    function.__doc__ = text
    return function


exp = _unary_function("exp", "e to the power of ``a``.")
log = _unary_function("log", "Natural logarithm.")
log1p = _unary_function("log1p", "log(1 + a), exact for small ``a``.")
expm1 = _unary_function("expm1", "exp(a) - 1, exact for small ``a``.")
tanh = _unary_function("tanh", "Hyperbolic tangent.")
erf = _unary_function("erf", "The error function.")
sqrt = _unary_function("sqrt", "Square root; nan for negative ``a``.")
rsqrt = _unary_function("rsqrt", "1 / sqrt(a).")
sigmoid = _unary_function("sigmoid", "1 / (1 + exp(-a)).")
sin = _unary_function("sin", "Sine.")
cos = _unary_function("cos", "Cosine.")
floor = _unary_function("floor", "The largest whole number not above ``a``.")
ceil = _unary_function("ceil", "The smallest whole number not below ``a``.")
isnan = _unary_function("isnan", "True where ``a`` is nan.")
abs = _unary_function("abs", "Absolute value.")  # noqa: A001


def pow(a: Expr | float, b: Expr | float) -> Expr:  # noqa: A001
    """``a`` to the power of ``b``; small constant powers become products."""
    a = as_expr(a)
    if b == 1:
        return a
    if b == 2:
        return a * a
    if b == 3:
        return a * a * a
    if b == 0.5:
        return sqrt(a)
    if b == -0.5:
        return rsqrt(a)
    if b == -1:
        return 1.0 / a
    return _binary("pow", a, b)


def max(a: Any, b: Any) -> Expr:  # noqa: A001
    """The larger; nan if either is nan."""
    return _binary("max", a, b)


def min(a: Any, b: Any) -> Expr:  # noqa: A001
    """The smaller; nan if either is nan."""
    return _binary("min", a, b)


def eq(a: Expr, b: Expr | float) -> Expr:
    """True where ``a`` equals ``b``."""
    return _binary("eq", a, b)


def ne(a: Expr, b: Expr | int) -> Expr:
    """True where ``a`` differs from ``b``."""
    return _binary("ne", a, b)


def where(condition: Any, a: Any, b: Any) -> Expr:
    """``a`` where the condition holds, else ``b``."""
    return Expr("where", (as_expr(condition), as_expr(a), as_expr(b)))


def fma(a: Expr, b: Expr, c: Expr | float) -> Expr:
    """``a * b + c``, rounded once where the processor can (no other expression is contracted). A
    sum over ``fma(a, b, 0)`` adds each product to the sum so, on the host."""
    return Expr("fma", (as_expr(a), as_expr(b), as_expr(c)))


def cast(a: Expr, dtype: str) -> Expr:
    """``a`` converted to the type of that name."""
    return Expr("cast", (as_expr(a),), str(dtype))


def trace(fn: Callable[..., Any], *names: str) -> Expr:
    """The expression that ``fn`` computes from variables of these names."""
    return as_expr(fn(*[var(n) for n in names]))


def substitute(expr: Expr, env: dict[str, Expr]) -> Expr:
    """``expr`` with variables replaced by the expressions that ``env`` names."""
    done: dict[Expr, Expr] = {}
    for node in walk(expr):
        if node.op == "var":
            done[node] = env.get(node.attr, node)
        else:
            done[node] = Expr(node.op, tuple(done[a] for a in node.args), node.attr)
    return done[expr]


def walk(expr: Expr) -> Iterator[Expr]:
    """Every distinct node, arguments before what uses them (no recursion)."""
    seen: set[Expr] = set()
    stack = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if node in seen:
            continue
        if ready:
            seen.add(node)
            yield node
        else:
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args))


def variables(expr: Expr) -> list[str]:
    """The names of the variables, each once, in order of first use."""
    return [n.attr for n in walk(expr) if n.op == "var"]
