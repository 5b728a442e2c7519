"""Tensors of many values, types, shapes and options of printing, as texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VALUES: tuple = (
    [], [1.0], [1.5, 2], [1e10, 1], [1e-10, 1], [float("nan"), 1], [float("inf"), -1.0], [0.3] * 3,
    list(range(2000)), [[1.0, 2], [3, 4]], [[1e5, 2e-5]], [True, False], [1 + 2j, 3.5 - 1e-3j],
    [[[]]], [1e38], [-0.0], [123456.789, 0.001], [1e8, 1.0], [1e-5, 0.1], [999999.0, 1.5],
    7, -2.5e-7,
)  # fmt: skip
OPTIONS: tuple[dict, ...] = (
    {}, {"precision": 2}, {"precision": 8}, {"sci_mode": True}, {"sci_mode": False},
    {"linewidth": 40}, {"threshold": 5, "edgeitems": 2}, {"profile": "short"}, {"profile": "full"},
    {"edgeitems": 1, "threshold": 1}, {"precision": 0},
)  # fmt: skip
TYPES = """float32 float64 float16 bfloat16 int64 int32 uint8 bool complex64 complex128
float8_e4m3fn""".split()
_WIDE, _COMPLEX = (3, 5, 6, 14, 17, 19), 12  # (no whole numbers of every type; no real ones)
SHAPES = ((2, 0), (0, 3), (1, 1, 1), (3, 3, 3), (2, 2, 2, 2), (30, 30), (1001,), (7, 150))


def tensors(T: Any) -> Iterator[tuple[str, Any]]:
    """Names and tensors; nothing that is out of a type's range."""
    for i, value in enumerate(VALUES):
        for name in TYPES:
            if (i in _WIDE and "int" in name) or (i == _COMPLEX and "complex" not in name):
                continue
            try:
                yield f"{value if i != 8 else 'range'} {name}", T.tensor(value).to(getattr(T, name))
            except (RuntimeError, TypeError, ValueError):
                continue
        yield f"{i} grad", (T.tensor(value) * 1.0).detach().requires_grad_()
    for shape in SHAPES:
        count = T.Size(shape).numel()
        whole = T.arange(count).reshape(shape)
        yield f"{shape}", whole / 3
        yield f"{shape} int", whole
        yield f"{shape} swapped", whole.transpose(0, -1)
    yield "meta", T.ones(2, 3, device="meta")
    dense = T.tensor([[0, 1.5], [2, 0]])
    yield from (("coo", dense.to_sparse()), ("csr", dense.to_sparse_csr()))
    yield from (("csc", dense.to_sparse_csc()), ("bsr", dense.to_sparse_bsr((1, 1))))
    yield "batched", T.stack([dense, dense]).to_sparse_csr()
    yield "double", dense.double().to_sparse()


def printed(T: Any) -> dict[str, str]:
    """The texts by option and name."""
    found = {}
    try:
        for options in OPTIONS:
            T.set_printoptions(profile="default")
            T.set_printoptions(**options)
            for name, t in tensors(T):
                found[f"{options} {name}"] = repr(t)
    finally:
        T.set_printoptions(profile="default")
    return found
