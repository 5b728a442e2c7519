"""Random numbers inside graphs: what a replay draws is not known when it is recorded, so the seed
and how far the generator has counted lie in the device's memory, and are written there before it.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from .codes.code import Code, Field, Operand, Pointer, Step, Steps

_MASK = (1 << 64) - 1
_SEED, _OFFSET = "((const dt_u64*)a.base)[0]", "((const dt_u64*)a.base)[1]"


@functools.cache
def replayed(code: Code) -> Code:
    """``code``, whose first numbers are a seed and an offset, with one more array after its others:
    uint64 of two elements that are added to these."""

    def make(operands: tuple[Operand, ...]) -> Steps:
        steps = code.make(operands[:-1])
        base = Pointer(len(operands) - 1)
        return Steps(tuple(_based(s, base) for s in steps.launches), steps.scratch)

    def reference(*args: Any) -> None:
        arrays, base, (seed, offset, *rest) = (
            args[: code.arrays], args[code.arrays], args[code.arrays + 1 :],
        )  # fmt: skip
        at = [(n + int(b)) & _MASK for n, b in zip((seed, offset), base)]
        code.reference(*arrays, *at, *rest)

    assert code.arrays >= 0 and code.numbers[:2] == ("u64", "u64")
    return Code(
        f"{code.name}_replayed", code.arrays + 1, code.numbers, code.writes, make, reference
    )


def _based(step: Step, base: Pointer) -> Step:
    body = step.body.replace("a.seed", f"(a.seed + {_SEED})")
    body = body.replace("a.offset", f"(a.offset + {_OFFSET})")
    assert body.count("a.base") == 2
    return replace(
        step,
        name=f"{step.name}_replayed",
        body=body,
        fields=(Field("base", "u64"), *step.fields),
        values={"base": base, **step.values},
    )
