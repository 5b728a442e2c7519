"""Which memory tensors lie in, and how: what a program's tensors share with each other, and their
strides, in both libraries.

A program takes a tensor of some shape and layout, and makes others from it and from each other by
operations that give views, copies, or the tensor itself. Then something is written to one of them.
"""

from __future__ import annotations

import copy
import random
import re
import warnings
from typing import Any

import numpy as np
from peers.program import execute

SHAPES = ((), (0,), (1,), (5,), (2, 3), (1, 4), (4, 1), (2, 0, 3), (2, 3, 4), (2, 3, 4, 5),
          (1, 3, 4, 4), (2, 1, 3, 3), (2, 3, 1, 1), (1, 1, 1, 1), (2, 3, 2, 2, 3))  # fmt: skip
FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")

# ``x`` is a tensor, ``a`` and ``b`` are two of its dimensions, ``f`` is a format.
SAME_OR_COPY = (
    "x.contiguous()", "x.contiguous(memory_format={f})", "x.clone()", "x.clone(memory_format={f})",
    "x.to(memory_format={f})", "x.to(x.dtype)", "x.to(T.float64)", "x.float()", "x.to(x)",
    "x.to(T.float64, memory_format={f})", "x.to(x.dtype, copy=True)", "x.type_as(x)", "x.ravel()",
    "x.flatten()", "x.reshape(-1)", "x.cpu()", "x.detach()", "x.data", "T.empty_like(x).zero_()",
    "T.zeros_like(x)", "T.ones_like(x, memory_format={f})", "T.full_like(x, 2.0)",
    "T.empty_like(x, memory_format={f}).zero_()", "T.asarray(x)", "T.as_tensor(x)",
    "T.tensor(x.detach())", "x.new_tensor(x.detach())", "x.new_zeros(x.shape)", "copy.copy(x)",
    "copy.deepcopy(x)", "x.positive()", "x.conj()", "x.resolve_conj()", "x.real", "T.atleast_1d(x)",
    "T.broadcast_tensors(x, x)[0]", "x.requires_grad_(False)", "x.unflatten(0, (-1,))",
    "x.repeat(2, *[1] * x.dim())", "T.dropout(x, 0.5, False)", "x.squeeze()", "x.expand(x.shape)",
    "x.view_as(x)",  "x.type(T.float32)", "x.double().float()",
    "T.nn.Parameter(x.detach())", "T.nn.Parameter(x.detach()).data", "x.resize_(x.shape)",
)  # fmt: skip
VIEWS = (
    "x.transpose({a}, {b})", "x.permute({order})", "x.unsqueeze({a})", "x[..., ::2]", "x[1:]",
    "x.movedim({a}, {b})", "x.t()", "x.select({a}, 0)", "x.narrow({a}, 0, 1)", "x.unbind({a})[0]",
    "x.split(1, {a})[0]", "x.diagonal()", "x[None]", "x.mT",
    "x.unfold({a}, 1, 1)", "x.squeeze({a})", "x.view(-1)", "x.swapaxes({a}, {b})",
    "x.as_strided((2,), (1,))", "x.chunk(2, {a})[-1]", "x.view(x.dtype)",
    "x.view(T.int32).view(T.float32)",
)  # fmt: skip


def program(seed: str) -> list[str]:
    """Statements that make ``v0``, ``v1``, ..."""
    rng = random.Random(seed)
    shape = rng.choice(SHAPES)
    count = int(np.prod(shape))
    lines = [f"v0 = T.arange({count}.).reshape({shape})"]
    for i in range(1, rng.randint(3, 7)):
        text = rng.choice(SAME_OR_COPY if rng.random() < 0.6 else VIEWS)
        x = f"v{rng.randrange(max(0, i - 3), i)}"
        text = re.sub(r"\bx\b", x, filled(rng, text, len(shape)))
        lines.append(f"v{i} = {text}")
    return lines


def filled(rng: random.Random, text: str, n: int) -> str:
    dims = range(max(n, 1))
    order = rng.sample(range(n), n)
    a, b = rng.choice(dims), rng.choice(dims)
    for name, value in (("a", a), ("b", b), ("order", order), ("f", f"T.{rng.choice(FORMATS)}")):
        text = text.replace(f"{{{name}}}", str(value))
    return text


def told(T: Any, lines: list[str]) -> list[str]:
    """What can be seen of the memory of each tensor that a program makes, a line for each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _told(T, lines)


def _told(T: Any, lines: list[str]) -> list[str]:
    names: dict = {"T": T, "copy": copy}
    out = []
    for i, line in enumerate(lines):
        if execute(line, names) is not None:
            out.append(f"v{i}: an error")
            names.pop(f"v{i}", None)
            continue
        out.append(f"v{i}: {_layout(T, names[f'v{i}'])} shares {_shared(names, i)}")
    return out


def _layout(T: Any, x: Any) -> str:
    formats = [f for f in FORMATS if "preserve" not in f]
    dense = x.numel() and [x.is_contiguous(memory_format=getattr(T, f)) for f in formats]
    steps = tuple(s if n > 1 else 0 for s, n in zip(x.stride(), x.shape)) if x.numel() else ()
    return f"{tuple(x.shape)} {str(x.dtype).split('.')[-1]} strides {steps} {dense}"


def _shared(names: dict, i: int) -> list[str]:
    """Which of the tensors before lie in the same memory, at which offset, or are the same."""
    x, found = names[f"v{i}"], []
    for j in range(i):
        y = names.get(f"v{j}")
        if y is None or not x.numel() or not y.numel():
            continue
        if y is x:
            found.append(f"is v{j}")
        elif y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
            found.append(f"v{j} at {x.storage_offset() - y.storage_offset()}")
    return found


def differs(ours: Any, peer: Any, seed: str) -> str | None:
    """What the libraries tell differently of a program, with the program up to there."""
    lines = program(seed)
    for i, (mine, other) in enumerate(zip(told(ours, lines), told(peer, lines))):
        if mine != other:
            shown = "\n  ".join(lines[: i + 1])
            return f"{seed}:\n  {shown}\n  ours    {mine}\n  PyTorch {other}"
    return None
