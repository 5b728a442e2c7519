"""Poisson counts on devices, by counter: POISSON (rates, out, seed, offset).

Small rates by products of uniform draws (Knuth, The Art of Computer Programming 2, 3.4.1), others
by transformed rejection (Hörmann, The transformed rejection method for generating Poisson random
variables, 1993: PTRS). An element has as many counters as it needs, of its own. Rates above 2**63
give nan, as counts of them have no type; those below 0 end the kernel (``checks.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..structs import C_STORED, Value
from .checks import RATE
from .checks import rates as check_rates
from .code import Code, Field, Number, Operand, Pointer, Step, Steps, blocks, expect, filled
from .randomness import PHILOX, philox

_BODY = """
  const dt_u64 i = (dt_u64)blockIdx.x * 256u + threadIdx.x;
  if (i >= a.n) return;
  const double rate = (double)((const $kind*)a.rates)[i];
  $check
  double found = rate <= 0x1p63 ? 0.0 : nan("");
  dt_u64 group = i;
  if (rate > 0 && rate < 10) {
    const double floor_of = exp(-rate);
    double product = 1;
    for (found = -1; product > floor_of; group += 1ull << 40) {
      const dt_words r = dt_philox(group, a.offset, a.seed);
      product *= dt_above(r.w[0], r.w[1]);
      found += 1;
    }
  } else if (rate >= 10 && rate <= 0x1p63) {
    const double wide = 0.931 + 2.53 * sqrt(rate), b = -0.059 + 0.02483 * wide;
    const double inverse = 1.1239 + 1.1328 / (wide - 3.4), sure = 0.9277 - 3.6224 / (wide - 2);
    for (;; group += 1ull << 40) {
      const dt_words r = dt_philox(group, a.offset, a.seed);
      const double u = dt_unit_wide(r.w[0], r.w[1]) - 0.5, v = dt_above(r.w[2], r.w[3]);
      const double rest = 0.5 - fabs(u);
      found = floor((2 * b / rest + wide) * u + rate + 0.43);
      if (rest >= 0.07 && v <= sure) break;
      if (found < 0 || (rest < 0.013 && v > rest)) continue;
      if (log(v) + log(inverse) - log(b / (rest * rest) + wide) <=
          -rate + found * log(rate) - lgamma(found + 1))
        break;
    }
  }
  (($kind*)a.out)[i] = ($kind)found;
"""


def _make(operands: tuple[Operand, ...]) -> Steps:
    rates, out = operands
    for name, o in (("rates", rates), ("out", out)):
        expect("poisson", name, o, ("float32", "float64"))
    expect("poisson", "out", out, (rates.dtype,))
    if out.size == 0:
        return Steps(())
    fields = tuple(Field(name, "u64") for name in ("rates", "out", "n", "seed", "offset"))
    values: dict[str, Value] = {
        "rates": Pointer(0), "out": Pointer(1), "n": out.size, "seed": Number(0),
        "offset": Number(1),
    }  # fmt: skip
    body = filled(_BODY, kind=C_STORED[out.dtype], check=RATE)
    name, grid = f"poisson_{out.dtype}", blocks(out.size, 256)
    return Steps((Step(name, body, fields, values, grid, helpers=(PHILOX,)),))


def _draws(i: int, seed: int, offset: int) -> Iterator[tuple[float, float]]:
    """Two uniform numbers of each counter of element ``i``, from [0, 1)."""
    while True:
        w = [int(x) for x in philox(np.array([i], np.uint64), seed, offset)[0]]
        yield ((w[0] << 32 | w[1]) >> 11) * 2.0**-53, ((w[2] << 32 | w[3]) >> 11) * 2.0**-53
        i += 1 << 40


def _count(rate: float, draws: Iterator[tuple[float, float]]) -> float:
    if not 0 < rate <= 2.0**63:
        return 0.0 if rate <= 0 else math.nan
    if rate < 10:
        bound, product, found = math.exp(-rate), 1.0, -1
        while product > bound:
            product *= next(draws)[0] + 2.0**-53
            found += 1
        return found
    wide = 0.931 + 2.53 * math.sqrt(rate)
    b = -0.059 + 0.02483 * wide
    inverse, sure = 1.1239 + 1.1328 / (wide - 3.4), 0.9277 - 3.6224 / (wide - 2)
    while True:
        first, second = next(draws)
        u, v = first - 0.5, second + 2.0**-53
        rest = 0.5 - abs(u)
        if rest == 0:
            continue
        found = math.floor((2 * b / rest + wide) * u + rate + 0.43)
        if rest >= 0.07 and v <= sure:
            return found
        if found < 0 or (rest < 0.013 and v > rest):
            continue
        ratio = math.log(v) + math.log(inverse) - math.log(b / (rest * rest) + wide)
        if ratio <= -rate + found * math.log(rate) - math.lgamma(found + 1):
            return found


def _by_numpy(rates: np.ndarray, out: np.ndarray, seed: int, offset: int) -> None:
    check_rates(rates)
    flat = [_count(float(r), _draws(i, seed, offset)) for i, r in enumerate(rates.reshape(-1))]
    out[...] = np.array(flat, out.dtype).reshape(out.shape)


POISSON = Code("poisson", 2, ("u64", "u64"), (1,), _make, _by_numpy)
