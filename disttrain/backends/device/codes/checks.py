"""Values that an operation cannot take, found on the device: within(name) (index (n), size, skip).

The host does not wait to look. What is wrong prints a line and ends the kernel, and with it, as
PyTorch's assertions do, all use of the device by this process: the next synchronization raises. By
numpy it is an error at once. ``TAKE``, ``GATHER``, ``ADD_ROWS``, ``BERNOULLI`` and ``POISSON`` look
for themselves; ``within`` is for numbers of classes and places that others read: each lies in
0 .. size - 1, or is ``skip``.
"""

from __future__ import annotations

import functools

import numpy as np

from ....errors import ConfigError, DimError
from ..structs import Value
from .code import Code, Field, Number, Operand, Pointer, Step, Steps, blocks, expect, filled

_BODY = """
  const dt_u64 i = (dt_u64)blockIdx.x * 256u + threadIdx.x;
  if (i >= a.n) return;
  const dt_i64 at = ((const dt_i64*)a.index)[i];
  if ((dt_u64)at >= (dt_u64)a.size && at != a.skip) dt_out_of_range("$name", at, a.size);
"""
PROBABILITY = 'if (!(p >= 0 && p <= 1)) dt_not_allowed("bernoulli: probability", p);'
RATE = 'if (!(rate >= 0)) dt_not_allowed("poisson: rate", rate);'


def _make(name: str, operands: tuple[Operand, ...]) -> Steps:
    (index,) = operands
    expect(name, "index", index, ("int64",))
    if not index.size:
        return Steps(())
    fields = (Field("index", "u64"), Field("n", "u64"), Field("size", "i64"), Field("skip", "i64"))
    values: dict[str, Value] = {
        "index": Pointer(0), "n": index.size, "size": Number(0), "skip": Number(1),
    }  # fmt: skip
    body = filled(_BODY, name=name)
    return Steps((Step(f"within_{name}", body, fields, values, blocks(index.size)),))


@functools.cache
def within(name: str) -> Code:
    """The check of the operation of that name."""

    def reference(index: np.ndarray, size: int, skip: int) -> None:
        wrong = index[((index < 0) | (index >= size)) & (index != skip)]
        if wrong.size:
            raise DimError(f"{name}: index {wrong[0]} is out of range for {size} rows")

    return Code(f"within_{name}", 1, ("i64", "i64"), (), functools.partial(_make, name), reference)


def probabilities(p: np.ndarray) -> None:
    """Refuse what is outside of [0, 1], and nan."""
    if not ((p >= 0) & (p <= 1)).all():
        raise ConfigError("bernoulli: probabilities must lie in [0, 1]")


def rates(found: np.ndarray) -> None:
    """Refuse what is below 0, and nan."""
    if not (found >= 0).all():
        raise ConfigError("poisson: rates must not be negative")


__all__ = ["PROBABILITY", "RATE", "probabilities", "rates", "within"]
