"""Calls to make of any module with PyTorch's names, legal and not: shapes, dimensions and sizes in
all combinations. ``outcome`` says what came of one: types and shapes, or ``!`` for an error."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

Case = tuple[str, Any, Callable[[Any], Any]]

SHAPES = [(), (0,), (1,), (3,), (2, 3), (0, 3), (3, 0), (1, 3), (3, 3), (2, 3, 4), (1, 2, 3, 4)]
DIMS = [None, 0, 1, 2, -1, -2, 3, -4, (0, 1), (0, 0), (), (1,)]
IMAGES = [(3,), (2, 3), (1, 3, 4), (2, 3, 8), (2, 3, 8, 8), (3, 8, 8), (2, 3, 4, 4, 4), (0, 3, 8),
          (2, 0, 8), ()]  # fmt: skip

_REDUCE = """sum mean var std amax amin any all nansum argmax argmin logsumexp norm
var_mean std_mean"""
_ALONG = (
    """cumsum cumprod softmax log_softmax sort argsort count_nonzero unbind squeeze unsqueeze"""
)
_SIZED = "split chunk tensor_split topk kthvalue select"
_LOSSES = """mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy
binary_cross_entropy_with_logits soft_margin_loss poisson_nll_loss hinge_embedding_loss"""


def ones(T: Any, shape: tuple, kind: str = "float32") -> Any:  # noqa: N803
    return T.ones(shape, dtype=getattr(T, kind))


def outcome(call: Callable, T: Any) -> str:  # noqa: N803
    """Types and shapes of the results; ``!`` for an error, ``bug`` for one not meant for users."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _told(call(T))
    except (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError):
        return "!"
    except Exception as error:
        return f"bug: {error!r}"


def _told(x: Any) -> str:
    if isinstance(x, (tuple, list)):
        return f"({', '.join(map(_told, x))})"
    if hasattr(x, "dtype"):
        return f"{str(x.dtype).rpartition('.')[2]}{list(x.shape)}"
    return repr(x)


def along() -> Iterator[Case]:
    """Functions of one tensor and a dimension."""
    for s, dim in product(SHAPES, DIMS):
        for name, keep in product(_REDUCE.split(), (False, True)):
            if name == "norm" and dim == ():
                continue
            yield (
                name,
                (s, dim, keep),
                lambda T, n=name, s=s, d=dim, k=keep: getattr(T, n)(ones(T, s), dim=d, keepdim=k),
            )
        for name in _ALONG.split():
            if dim is not None:
                yield name, (s, dim), lambda T, n=name, s=s, d=dim: getattr(T, n)(ones(T, s), d)
        for name, k in product(_SIZED.split(), (-1, 0, 1, 2, 5)):
            order = (dim, k) if name == "select" else (k, dim)
            yield name, (s, *order), lambda T, n=name, s=s, o=order: getattr(T, n)(ones(T, s), *o)
        for start, length in product((0, 1, -1, 5), (0, 1, 3, -1)):
            yield (
                "narrow",
                (s, dim, start, length),
                lambda T, s=s, a=(dim, start, length): T.narrow(ones(T, s), *a),
            )
        for size, step in product((0, 1, 2, 4), (0, 1, 2)):
            yield (
                "unfold",
                (s, dim, size, step),
                lambda T, s=s, a=(dim, size, step): ones(T, s).unfold(*a),
            )
        for end in (0, 1, -1, 2):
            for name in ("transpose", "diagonal"):
                more = (1, dim, end) if name == "diagonal" else (dim, end)
                yield name, (s, *more), lambda T, n=name, s=s, m=more: getattr(T, n)(ones(T, s), *m)
    for name, s in product(("tril", "triu", "trace", "t", "sum", "max", "argmin", "mean"), SHAPES):
        yield name, s, lambda T, n=name, s=s: getattr(T, n)(ones(T, s))


_PAIRS: dict[str, Callable] = {
    "add": lambda T, a, b: a + b, "lerp": lambda T, a, b: T.lerp(a, b, 0.5),
    "addcmul": lambda T, a, b: T.addcmul(a, b, b), "matmul": lambda T, a, b: a @ b,
    "mm": lambda T, a, b: T.mm(a, b), "bmm": lambda T, a, b: T.bmm(a, b),
    "mv": lambda T, a, b: T.mv(a, b), "dot": lambda T, a, b: T.dot(a, b),
    "inner": lambda T, a, b: T.inner(a, b), "outer": lambda T, a, b: T.outer(a, b),
    "addmm": lambda T, a, b: T.addmm(ones(T, (3, 3)), a, b), "add_": lambda T, a, b: a.add_(b),
    "where": lambda T, a, b: T.where(a > 0, b, b), "hstack": lambda T, a, b: T.hstack([a, b]),
    "vstack": lambda T, a, b: T.vstack([a, b]), "expand_as": lambda T, a, b: a.expand_as(b),
    "masked_fill": lambda T, a, b: a.masked_fill(b > 0, 1.0), "mask": lambda T, a, b: a[b > 0],
    "masked_select": lambda T, a, b: T.masked_select(a, b > 0),
    "gather": lambda T, a, b: T.gather(a, 0, (b - b).long()),
    "scatter": lambda T, a, b: T.scatter(a, 0, (b - b).long(), b),
    "scatter_add": lambda T, a, b: T.scatter_add(a, 0, (b - b).long(), b),
    "index_add": lambda T, a, b: T.index_add(a, 0, T.zeros(2, dtype=T.int64), b),
    "index_copy": lambda T, a, b: T.index_copy(a, 0, T.zeros(2, dtype=T.int64), b),
    "take": lambda T, a, b: T.take(a, (b - b).long()),
    "bucketize": lambda T, a, b: T.bucketize(a, b),
    "take_along_dim": lambda T, a, b: T.take_along_dim(a, (b - b).long(), 0),
    "tensor index": lambda T, a, b: a[(b - b).long()], "isclose": lambda T, a, b: T.isclose(a, b),
    "view": lambda T, a, b: a.view(b.shape), "reshape": lambda T, a, b: a.reshape(b.shape),
    "repeat": lambda T, a, b: a.repeat(tuple(b.shape)), "expand": lambda T, a, b: a.expand(b.shape),
    "einsum ij,jk": lambda T, a, b: T.einsum("ij,jk->ik", a, b),
    "einsum i,i": lambda T, a, b: T.einsum("i...,i...->...", a, b),
}  # fmt: skip


def pairs() -> Iterator[Case]:
    """Functions of two tensors of any shapes."""
    for (name, call), s, s2 in product(_PAIRS.items(), SHAPES, SHAPES):
        yield name, (s, s2), lambda T, c=call, s=s, s2=s2: c(T, ones(T, s), ones(T, s2))
    for s, s2, dim in product(SHAPES, SHAPES, (0, 1, -1, 3)):
        for name in ("cat", "stack"):
            if name == "stack" or s != (0,):
                yield (
                    name,
                    (s, s2, dim),
                    lambda T, n=name, s=s, s2=s2, d=dim: getattr(T, n)(
                        [ones(T, s), ones(T, s2)], d
                    ),
                )
    for equation, s in product(
        ("ij->ji", "ii->i", "ii", "i->ii", "i->j", "...", "...i->..."), SHAPES
    ):
        yield "einsum", (equation, s), lambda T, e=equation, s=s: T.einsum(e, ones(T, s))


INDICES = [
    0, -1, 5, slice(1, 2), slice(None, None, 2), slice(2, 1), None, Ellipsis, [0], [0, 0], [],
    True, False, (0, 0), (Ellipsis, 0), (slice(None), 0), (None, 0), (0, None, 0),
    ([0], [0]), ([0, 1], [0]), (slice(None), [0]), slice(None, None, -1), 1.5, "a",
    (0, 0, 0, 0), [True], [True, False, True], (None, None), slice(-5, 100), (0, True),
]  # fmt: skip


def _written(T: Any, s: tuple, index: Any, value: Any) -> Any:  # noqa: N803
    x = ones(T, s)
    x[index] = value
    return x


def indexing() -> Iterator[Case]:
    """``x[...]``, read and written."""
    for index, s in product(INDICES, SHAPES):
        yield "getitem", (s, index), lambda T, i=index, s=s: ones(T, s)[i]
        yield "setitem", (s, index), lambda T, i=index, s=s: _written(T, s, i, 2.0)
        for v in ((), (1,), (3,), (2, 3), (1, 1, 3)):
            if index is not False:
                yield (
                    "setitem tensor",
                    (s, index, v),
                    lambda T, i=index, s=s, v=v: _written(T, s, i, ones(T, v)),
                )


def _f(name: str, *shapes: Any, **options: Any) -> Callable:
    """A call of ``nn.functional.name`` with tensors of the given shapes; what stands
    in a list is passed as it is."""
    return lambda T: getattr(T.nn.functional, name)(
        *(ones(T, s) if isinstance(s, tuple) else s[0] for s in shapes), **options
    )


_POOLS = "max_pool1d avg_pool1d max_pool2d avg_pool2d"
_ADAPTIVE = "adaptive_avg_pool1d adaptive_max_pool2d"
_WEIGHTS = [(4, 3, 3), (4, 3, 1), (4, 1, 3), (4, 3, 3, 3), (4, 2, 3), (4, 3), (4, 3, 9),
            (4, 3, 3, 3, 3)]  # fmt: skip


def layers() -> Iterator[Case]:
    """The functions behind layers."""
    for s, k in product(IMAGES, (1, 2, 3, 9)):
        for name, stride, padding in product(_POOLS.split(), (None, 1, 2, 0), (0, 1, 2)):
            yield name, (s, k, stride, padding), _f(name, s, [k], [stride], [padding])
        for name in (*_ADAPTIVE.split(), "pixel_shuffle", "pixel_unshuffle", "group_norm"):
            if 0 not in s:
                yield name, (s, k), _f(name, s, [k])
        for mode in ("constant", "reflect", "replicate", "circular"):
            for widths in ((k,), (k, k), (k, 0, 0, k), (-k, k), (k,) * 6):
                yield f"pad {mode}", (s, widths), _f("pad", s, [widths], mode=mode)
    for s, w in product(IMAGES, _WEIGHTS):
        yield "linear", (s, w), _f("linear", s, w)
        for padding, groups in product((0, 1, "same", "valid", -1), (1, 3, 2)):
            for n in (1, 2, 3):
                if 0 not in s:
                    yield (
                        f"conv{n}d",
                        (s, w, padding, groups),
                        _f(f"conv{n}d", s, w, padding=padding, groups=groups),
                    )
    for s, w in product(IMAGES, ((), (3,), (8,), (1,), (4,))):
        yield "linear", (s, w), _f("linear", s, w)
        yield "linear bias", (s, w), _f("linear", s, (4, 3), w)
        yield "layer_norm", (s, w), _f("layer_norm", s, [w])
        yield "rms_norm", (s, w), _f("rms_norm", s, [w])
        yield "prelu", (s, w), _f("prelu", s, w)
        if 0 not in s:
            yield "batch_norm", (s, w), _f("batch_norm", s, [None], [None], w, training=True)
            yield "instance_norm", (s, w), _f("instance_norm", s, [None], [None], w)
    for s, dim in product(IMAGES, (0, 1, -1, 2)):
        yield "glu", (s, dim), _f("glu", s, [dim])
        yield "cosine_similarity", (s, dim), _f("cosine_similarity", s, s, [dim])


def losses() -> Iterator[Case]:
    """Losses of inputs and targets of any shapes."""
    for s, s2 in product(IMAGES, IMAGES):
        for name, reduction in product(_LOSSES.split(), ("mean", "sum", "none", "other")):
            yield name, (s, s2, reduction), _f(name, s, s2, reduction=reduction)
        yield "cosine_similarity", (s, s2), _f("cosine_similarity", s, s2)
        yield "triplet_margin_loss", (s, s2), _f("triplet_margin_loss", s, s2, s)
        yield "gaussian_nll_loss", (s, s2), _f("gaussian_nll_loss", s, s, s2)
        yield "bilinear", (s, s2), _f("bilinear", s, s2, (4, 3, 3))
        yield "cross_entropy soft", (s, s2), _f("cross_entropy", s, s2)
        for name in ("cross_entropy", "nll_loss"):
            yield (
                name,
                (s, s2),
                lambda T, n=name, s=s, s2=s2: getattr(T.nn.functional, n)(
                    ones(T, s), T.zeros(s2, dtype=T.int64)
                ),
            )


GROUPS = (along, pairs, indexing, layers, losses)
