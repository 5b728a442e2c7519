"""What types results have, asked of any module with PyTorch's names.

``tables(T)`` runs every operation on every pair of element types and says what came out, one letter
per type, ``!`` where the operation refused. ``scripts/type_table.py`` asks PyTorch and stores the
answer (``tests/ops/data/types.json``); ``tests/ops/test_promotion.py`` asks ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

LETTERS = {
    "bool": "b", "uint8": "u", "int8": "c", "int16": "s", "int32": "i", "int64": "l",
    "float16": "h", "bfloat16": "g", "float32": "f", "float64": "d", "complex64": "F",
    "complex128": "D",
}  # fmt: skip
TYPES = tuple(LETTERS)
NUMBERS = (True, 2, 2.5, 1 + 2j)

# Both tensors of any type, the second also a number.
_BINARY = """add sub mul div floor_divide remainder fmod pow atan2 logaddexp maximum minimum eq ne
lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor xlogy hypot
copysign fmax fmin gcd lcm heaviside logaddexp2 float_power bitwise_left_shift
bitwise_right_shift nextafter ldexp"""
_INPLACE = """add_ sub_ mul_ div_ pow_ remainder_ fmod_ floor_divide_ copy_ logical_and_ logical_or_
bitwise_and_ bitwise_or_ eq_ lt_ gt_ clamp_min_ clamp_max_ fill_ atan2_ xlogy_"""
_OPERATORS: dict[str, Callable] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": lambda a, b: a / b, "//": lambda a, b: a // b, "%": lambda a, b: a % b,
    "**": lambda a, b: a**b, "&": lambda a, b: a & b, "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b, "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b,
    "<": lambda a, b: a < b, "==": lambda a, b: a == b, ">=": lambda a, b: a >= b,
}  # fmt: skip
_UNARY = """neg abs exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square sin cos tan asin acos atan
sinh cosh tanh asinh acosh atanh sigmoid relu erf reciprocal sign sgn floor ceil trunc round conj
isnan isinf isfinite logical_not bitwise_not nan_to_num erfc lgamma digamma i0 sinc frac signbit
deg2rad rad2deg positive angle isreal isposinf isneginf logit erfinv"""
_REDUCE = """sum nansum mean var std amax amin max min argmax argmin prod any all count_nonzero norm
median sort argsort logsumexp unique msort var_mean std_mean quantile topk diff cummax cummin
nanmean nanmedian aminmax mode"""
_REDUCE_DIM = """sum nansum mean var std amax amin max min argmax argmin prod any all count_nonzero
cumsum cumprod logsumexp median kthvalue sort softmax log_softmax norm"""
_TYPED = """sum nansum mean prod cumsum cumprod softmax log_softmax norm"""
_ACTIVATIONS = """relu relu6 elu selu celu gelu silu mish hardtanh hardsigmoid hardswish hardshrink
softshrink softplus logsigmoid softsign tanhshrink leaky_relu sigmoid tanh threshold"""
_LOSSES = """mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
binary_cross_entropy_with_logits kl_div soft_margin_loss poisson_nll_loss hinge_embedding_loss"""


class Letters:
    """Makes operands for ``T`` and names what comes back."""

    def __init__(self, T: Any) -> None:  # noqa: N803
        self.T = T
        self.types = [getattr(T, t) for t in TYPES]
        self.names = {kind: LETTERS[t] for t, kind in zip(TYPES, self.types, strict=True)}
        self.made: dict = {}

    def operand(self, i: int, shape: tuple) -> Any:
        return self.T.ones(shape, dtype=self.types[i])

    def letter(self, call: Callable, *args: Any) -> str:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = call(*args)
        except (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError):
            return "!"
        except Exception:  # not an error for users
            return "E"
        while isinstance(out, tuple | list):
            out = out[0]
        return self.names.get(out.dtype, "?")

    def pairs(self, call: Callable, first: tuple, second: tuple) -> str:
        n = range(len(TYPES))
        return " ".join(
            "".join(self.letter(call, self.operand(i, first), self.operand(j, second)) for j in n)
            for i in n
        )

    def numbers(self, call: Callable, shape: tuple) -> str:
        n = range(len(TYPES))
        return " ".join(
            "".join(self.letter(call, self.operand(i, shape), x) for x in NUMBERS) for i in n
        )

    def each(self, call: Callable, shape: tuple = (2, 2)) -> str:
        return "".join(self.letter(call, self.operand(i, shape)) for i in range(len(TYPES)))

    def to_each(self, call: Callable) -> str:
        """``call(x, dtype)`` for every type of x and every dtype."""
        n = range(len(TYPES))
        return " ".join(
            "".join(self.letter(call, self.operand(i, (2, 2)), k) for k in self.types) for i in n
        )


def known(T: Any, words: str) -> Iterator[tuple[str, Callable]]:  # noqa: N803
    for name in words.split():
        if hasattr(T, name):
            yield name, getattr(T, name)


def binary(T: Any) -> Iterator[tuple[str, str]]:  # noqa: N803
    """Functions, operators and in-place methods of two operands."""
    ask = Letters(T)
    functions = dict(known(T, _BINARY))
    functions |= {
        "div trunc": lambda a, b: T.div(a, b, rounding_mode="trunc"),
        "div floor": lambda a, b: T.div(a, b, rounding_mode="floor"),
        "add alpha=2": lambda a, b: T.add(a, b, alpha=2),
        "add alpha=2.5": lambda a, b: T.add(a, b, alpha=2.5),
        "add alpha=True": lambda a, b: T.add(a, b, alpha=True),
        "sub alpha=2": lambda a, b: T.sub(a, b, alpha=2),
        "sub alpha=2.5": lambda a, b: T.sub(a, b, alpha=2.5),
        "where": lambda a, b: T.where(T.ones(2, 2, dtype=T.bool), a, b),
        "clamp min": lambda a, b: T.clamp(a, min=b),
        "clamp both": lambda a, b: T.clamp(a, b, b),
        "clamp_max": T.clamp_max,
        "result_type": lambda a, b: T.empty(0, dtype=T.result_type(a, b)),
        "masked_fill": lambda a, b: a.masked_fill(a == a, b),
        "isclose": T.isclose,
    }
    for name, call in [*functions.items(), *_OPERATORS.items()]:
        for form, first, second in (("dd", (2, 2), (2, 2)), ("d0", (2, 2), ()), ("0d", (), (2, 2))):
            yield f"{name} {form}", ask.pairs(call, first, second)
        yield f"{name} dn", ask.numbers(call, (2, 2))
        yield f"{name} 0n", ask.numbers(call, ())
    for name, call in [*_OPERATORS.items(), ("where", functions["where"])]:
        yield f"{name} nd", ask.numbers(lambda a, x, call=call: call(x, a), (2, 2))
    for name, call in known(T.Tensor, _INPLACE):
        yield f"{name} dd", ask.pairs(call, (2, 2), (2, 2))
        yield f"{name} d0", ask.pairs(call, (2, 2), ())
        yield f"{name} dn", ask.numbers(call, (2, 2))


def joined(T: Any) -> Iterator[tuple[str, str]]:  # noqa: N803
    """Functions of two tensors that are not elementwise."""
    ask = Letters(T)
    zero = T.zeros(2, 2, dtype=T.int64)
    row = T.zeros(2, dtype=T.int64)
    F = T.nn.functional  # noqa: N806
    calls: dict[str, Callable] = {
        "cat": lambda a, b: T.cat([a, b]),
        "cat empty": lambda a, b: T.cat([a, T.empty(0, dtype=b.dtype)]),
        "stack": lambda a, b: T.stack([a, b]),
        "hstack": lambda a, b: T.hstack([a, b]),
        "matmul": T.matmul, "mm": T.mm, "@": lambda a, b: a @ b,
        "mv": lambda a, b: T.mv(a, b[0]), "dot": lambda a, b: T.dot(a[0], b[0]),
        "inner": T.inner, "outer": lambda a, b: T.outer(a[0], b[0]),
        "bmm": lambda a, b: T.bmm(a[None], b[None]),
        "addmm": lambda a, b: T.addmm(a, b, b), "addmm 2": lambda a, b: T.addmm(a, a, b),
        "einsum": lambda a, b: T.einsum("ij,jk->ik", a, b),
        "addcmul": lambda a, b: T.addcmul(a, b, b), "addcmul 2": lambda a, b: T.addcmul(a, a, b),
        "addcdiv": lambda a, b: T.addcdiv(a, b, b), "lerp": lambda a, b: T.lerp(a, b, 0.5),
        "lerp weight": lambda a, b: T.lerp(a, a, b),
        "addcmul_": lambda a, b: a.addcmul_(b, b), "addcdiv_": lambda a, b: a.addcdiv_(b, b),
        "lerp_": lambda a, b: a.lerp_(b, 0.5), "masked_fill_": lambda a, b: a.masked_fill_(b, 1),
        "scatter": lambda a, b: T.scatter(a, 0, zero, b),
        "scatter_add": lambda a, b: T.scatter_add(a, 0, zero, b),
        "scatter_reduce": lambda a, b: T.scatter_reduce(a, 0, zero, b, "amax"),
        "index_add": lambda a, b: T.index_add(a, 0, row, b),
        "index_copy": lambda a, b: T.index_copy(a, 0, row, b),
        "index_put": lambda a, b: T.index_put(a, (row,), b),
        "setitem": lambda a, b: (a.__setitem__(0, b[0]), a)[1],
        "setitem index": lambda a, b: (a.__setitem__(row, b), a)[1],
        "index": lambda a, b: a[b], "index_select": lambda a, b: T.index_select(a, 0, b[0]),
        "gather": lambda a, b: T.gather(a, 0, b - b), "take": lambda a, b: T.take(a, b),
        "masked_select": T.masked_select, "masked_fill mask": lambda a, b: a.masked_fill(b, 1),
        "where mask": lambda a, b: T.where(a, b, b), "bucketize": lambda a, b: T.bucketize(a, b[0]),
        "allclose": lambda a, b: T.empty(0, dtype=T.bool) if T.allclose(a, b) else a,
        "equal": lambda a, b: T.empty(0, dtype=T.bool) if T.equal(a, b) else a,
        "F.linear": F.linear, "F.linear bias": lambda a, b: F.linear(a, a, b[0]),
        "F.bilinear": lambda a, b: F.bilinear(a, a, b[None]),
        "F.conv1d": lambda a, b: F.conv1d(a[None], b[:, :, None]),
        "F.conv2d bias": lambda a, b: F.conv2d(
            a[None, None], T.ones(2, 1, 1, 1, dtype=a.dtype), b[0]
        ),
        "F.embedding": lambda a, b: F.embedding(a, b), "F.prelu": lambda a, b: F.prelu(a, b[0]),
        "F.layer_norm": lambda a, b: F.layer_norm(a, (2,), b[0]),
        "F.rms_norm": lambda a, b: F.rms_norm(a, (2,), b[0]),
        "F.group_norm": lambda a, b: F.group_norm(a[..., None], 2, b[0]),
        "F.batch_norm": lambda a, b: F.batch_norm(a, None, None, b[0], training=True),
        "F.batch_norm running": lambda a, b: F.batch_norm(a, b[0].clone(), b[0].clone()),
        "F.cross_entropy soft": F.cross_entropy, "F.nll_loss": lambda a, b: F.nll_loss(a, b[0]),
        "F.cross_entropy": lambda a, b: F.cross_entropy(a, b[0]),
        "F.cosine_similarity": F.cosine_similarity, "F.pairwise_distance": F.pairwise_distance,
        "F.scaled_dot_product_attention": lambda a, b: F.scaled_dot_product_attention(
            a[None], b[None], b[None]
        ),
        "F.gaussian_nll_loss": lambda a, b: F.gaussian_nll_loss(a, b, b),
        "quantile": lambda a, b: T.quantile(a, b[0]),
        "grad": lambda a, b: (
            lambda x: T.autograd.grad(x * 1, x, b)
        )(a.clone().requires_grad_()),
    }  # fmt: skip
    for name, call in known(F, _LOSSES):
        calls[f"F.{name}"] = call
        calls[f"F.{name} none"] = lambda a, b, call=call: call(a, b, reduction="none")
    for name, call in calls.items():
        yield name, ask.pairs(call, (2, 2), (2, 2))


def single(T: Any) -> Iterator[tuple[str, str]]:  # noqa: N803
    """Functions of one tensor, the types that they accept, ``dtype=``."""
    ask = Letters(T)
    for name, call in known(T, _UNARY):
        yield name, ask.each(call)
    for name, call in known(T.Tensor, " ".join(f"{n}_" for n in _UNARY.split())):
        yield name, ask.each(call)
    one = dict(known(T, _REDUCE))
    one["quantile"] = lambda a: T.quantile(a, 0.5)
    one["topk"] = lambda a: T.topk(a, 1)
    one["argsort"] = lambda a: T.argsort(a)
    one["logsumexp"] = lambda a: T.logsumexp(a, (0, 1))
    for name, call in one.items():
        yield f"{name}()", ask.each(call)
    for name in ("cummax", "cummin", "diff"):
        if hasattr(T, name):
            yield name, ask.each(lambda a, name=name: getattr(T, name)(a, 0))
    for name, call in known(T, _REDUCE_DIM):
        if name == "kthvalue":
            yield name, ask.each(lambda a: T.kthvalue(a, 1))
        elif name == "norm":
            yield "norm dim", ask.each(lambda a: T.norm(a, dim=0))
        else:
            yield f"{name} dim", ask.each(lambda a, call=call: call(a, 0))
    for name, call in known(T, _TYPED):
        if name == "norm":
            yield "norm dtype", ask.to_each(lambda a, k: T.norm(a, dtype=k))
        else:
            yield f"{name} dtype", ask.to_each(lambda a, k, call=call: call(a, dim=0, dtype=k))
    yield from _more(T, ask)


def _more(T: Any, ask: Letters) -> Iterator[tuple[str, str]]:  # noqa: N803
    F = T.nn.functional  # noqa: N806
    for name, call in known(F, _ACTIVATIONS):
        if name == "threshold":
            call = lambda a: F.threshold(a, 0.5, 1.0)
        yield f"F.{name}", ask.each(call)
    calls: dict[str, Callable] = {
        "bincount": lambda a: T.bincount(a[0]), "histc": T.histc, "tril": T.tril, "trace": T.trace,
        "flip": lambda a: T.flip(a, (0,)), "clamp": lambda a: T.clamp(a, 0, 1),
        "clamp float": lambda a: T.clamp(a, 0.0, 1.0), "norm 1": lambda a: T.norm(a, 1),
        "norm 0": lambda a: T.norm(a, 0), "norm inf": lambda a: T.norm(a, float("inf")),
        "vector_norm": T.linalg.vector_norm, "det": T.linalg.det, "inv": T.linalg.inv,
        "bernoulli": T.bernoulli, "multinomial": lambda a: T.multinomial(a, 1),
        "normal_": lambda a: a.normal_(), "uniform_": lambda a: a.uniform_(),
        "random_": lambda a: a.random_(0, 2), "bernoulli_": lambda a: a.bernoulli_(0.5),
        "exponential_": lambda a: a.exponential_(), "rand_like": T.rand_like,
        "randn_like": T.randn_like, "randint_like": lambda a: T.randint_like(a, 2),
        "dropout": lambda a: T.dropout(a, 0.5, True), "F.normalize": F.normalize,
        "F.max_pool2d": lambda a: F.max_pool2d(a[None], 2), "F.glu": F.glu,
        "F.max_pool1d": lambda a: F.max_pool1d(a, 2), "F.avg_pool1d": lambda a: F.avg_pool1d(a, 2),
        "F.avg_pool2d": lambda a: F.avg_pool2d(a[None], 2), "F.pad": lambda a: F.pad(a, (1, 1)),
        "F.pad reflect": lambda a: F.pad(a, (1, 1), mode="reflect"),
        "F.adaptive_avg_pool2d": lambda a: F.adaptive_avg_pool2d(a[None], 1),
        "F.adaptive_max_pool2d": lambda a: F.adaptive_max_pool2d(a[None], 1),
        "F.interpolate": lambda a: F.interpolate(a[None, None], scale_factor=2),
        "F.interpolate bilinear": lambda a: F.interpolate(
            a[None, None], scale_factor=2, mode="bilinear"
        ),
        "F.softmax": lambda a: F.softmax(a, 0), "F.one_hot": F.one_hot,
        "F.layer_norm plain": lambda a: F.layer_norm(a, (2,)),
        "F.batch_norm plain": lambda a: F.batch_norm(a, None, None, training=True),
        "F.instance_norm": lambda a: F.instance_norm(a[None]),
        "F.local_response_norm": lambda a: F.local_response_norm(a[None], 2),
        "F.unfold": lambda a: F.unfold(a[None, None], 1), "nonzero": T.nonzero,
        "F.pixel_shuffle": lambda a: F.pixel_shuffle(T.ones(1, 4, 2, 2, dtype=a.dtype), 2),
        "searchsorted": lambda a: T.searchsorted(a[0], a[1]), "repeat": lambda a: a.repeat(2, 1),
        "requires_grad_": lambda a: a.requires_grad_(), "round 1": lambda a: T.round(a, decimals=1),
        "real": lambda a: a.real, "imag": lambda a: a.imag, "roll": lambda a: T.roll(a, 1),
        "arange": lambda a: T.arange(3, dtype=a.dtype), "randperm": lambda a: T.randperm(
            3, dtype=a.dtype
        ),
        "linspace": lambda a: T.linspace(0, 3, 4, dtype=a.dtype), "eye": lambda a: T.eye(
            2, dtype=a.dtype
        ),
        "rand": lambda a: T.rand(2, dtype=a.dtype), "randn": lambda a: T.randn(2, dtype=a.dtype),
        "randint": lambda a: T.randint(2, (2,), dtype=a.dtype),
        "complex": lambda a: T.complex(a, a), "logspace": lambda a: T.logspace(
            0, 1, 2, dtype=a.dtype
        ),
        "full 1j": lambda a: T.full((2,), 1j, dtype=a.dtype), "poisson": T.poisson,
        "cumsum_": lambda a: a.cumsum_(0), "view int16": lambda a: a.view(T.int16),
        "clip_grad_norm_": lambda a: T.nn.utils.clip_grad_norm_(_with_grad(a), 1.0),
    }  # fmt: skip
    for name, call in calls.items():
        yield name, ask.each(call)
    yield "default types", "".join(
        ask.letter(lambda f=f: f(T))
        for f in (
            lambda T: T.tensor(1), lambda T: T.tensor(1.0), lambda T: T.tensor(True),
            lambda T: T.tensor(1j), lambda T: T.tensor([1, 2.5]), lambda T: T.tensor([1, 2j]),
            lambda T: T.tensor([]), lambda T: T.tensor([True, 2]), lambda T: T.full((2,), 1),
            lambda T: T.full((2,), 1.0), lambda T: T.full((2,), True), lambda T: T.full((2,), 1j),
            lambda T: T.arange(3), lambda T: T.arange(3.0), lambda T: T.arange(0, 3, 0.5),
            lambda T: T.linspace(0, 1, 3), lambda T: T.linspace(0, 1j, 3),
            lambda T: T.linspace(1j, 1, 3), lambda T: T.randperm(3), lambda T: T.randperm(0),
            lambda T: T.randint(3, (2,)), lambda T: T.logspace(0, 1j, 3), lambda T: T.eye(2),
            lambda T: T.nonzero(T.ones(2)), lambda T: T.where(T.ones(2, dtype=T.bool), 1, 2.0),
            lambda T: T.where(T.ones(2, dtype=T.bool), 1, 2),
            lambda T: T.where(T.ones(2, dtype=T.bool), 1.5, 2j),
            lambda T: T.logspace(0, 1, 3),
        )
    )  # fmt: skip


def _with_grad(a: Any) -> Any:
    a = a.clone().requires_grad_()
    a.grad = a.detach().clone()
    return [a]


GROUPS = (binary, joined, single)


def tables(T: Any) -> dict[str, str]:  # noqa: N803
    """Every table by name."""
    return {name: rows for group in GROUPS for name, rows in group(T)}
