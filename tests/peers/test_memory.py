"""What tensors share, how they lie in memory, and the types of results, as in PyTorch."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.peer
CHUNK = 150


@pytest.mark.parametrize("first", range(0, 600, CHUNK))
def test_tensors_share_memory_as_in_pytorch(first):
    import torch
    from peers.generators.memory import differs

    import disttrain

    found = [differs(disttrain, torch, f"memory {seed}") for seed in range(first, first + CHUNK)]
    found = [f for f in found if f]
    assert not found, f"{len(found)} of {CHUNK} programs differ:\n" + "\n".join(found[:3])


# --- types ---------------------------------------------------------------------------------------
SCALARS = (
    "1", "1.0", "True", "1j", "np.float64(2)", "np.float32(2)", "np.float16(2)", "np.int32(2)",
    "np.int64(2)", "np.int16(3)", "np.uint8(1)", "np.complex128(1)",
)  # fmt: skip
WITHIN = (*SCALARS, "np.bool_(1)", "np.complex64(1)", "T.tensor(2.0, dtype=T.float64)",
          "T.tensor(2)", "T.tensor(2, dtype=T.int16)")  # fmt: skip
KINDS = ("bool", "uint8", "int32", "int64", "bfloat16", "float16", "float32", "float64",
         "complex64", "complex128")  # fmt: skip
OPERANDS = [f"T.ones({shape}, dtype=T.{k})" for shape in ("2", "()") for k in KINDS]
NAMES = ("maximum", "atan2", "fmod", "remainder", "pow", "float_power", "logaddexp", "add",
         "true_divide", "floor_divide", "xlogy", "copysign", "eq", "hypot", "bitwise_and",
         "logical_and", "fmax", "clamp_min")  # fmt: skip
SECOND = ("1", "1.5", "T.ones(2)", "T.ones((), dtype=T.float64)", "T.ones(2, dtype=T.int16)",
          "T.ones(2, dtype=T.float16)")  # fmt: skip
BOUNDS = ("0, 1.5", "T.tensor(0.5), T.tensor([1.5], dtype=T.float64)",
          "T.tensor(0.5, dtype=T.float32), T.tensor(1.5, dtype=T.float64)",
          "T.tensor(0.5, dtype=T.float16), T.tensor(1.5)", "0.5, None",
          "None, T.tensor(3)")  # fmt: skip
CALLS = {
    "data": [f"T.tensor({a})" for a in WITHIN]
    + [f"T.tensor([{a}, {b}])" for a in WITHIN for b in WITHIN]
    + ["T.tensor([[1, 2], [np.float64(3), 4]])", "T.tensor([])", "T.tensor([[], []])"]
    + [f"T.{f}([1, np.float64(2)])" for f in ("tensor", "as_tensor", "asarray")]
    + [f"T.zeros(1, dtype={k})" for k in ("float", "int", "bool", "complex")]
    + [f"T.ones(1).to({k})" for k in ("float", "int", "bool", "complex")]
    + [f"T.ones(1).sum(dtype={k})" for k in ("float", "int", "complex")],
    "scalars": [f"T.result_type({a}, {b})" for a in (*SCALARS, *OPERANDS) for b in SCALARS],
    "arithmetic": [f"{x} {o} {s}" for x in OPERANDS for o in ("*", "/", "**") for s in SCALARS]
    + [f"{x} * {y}" for x in OPERANDS for y in OPERANDS],
    "functions": [f"T.{f}({x}, {y})" for f in NAMES for x in OPERANDS[::2] for y in SECOND],
    "limits": [f"T.clamp({x}, {b})" for x in OPERANDS for b in BOUNDS],
}


def _type(T, call):
    import numpy as np

    try:
        found = eval(call, {"T": T, "np": np})
    except Exception:
        return "an error"
    return str(getattr(found, "dtype", found)).rpartition(".")[2]


@pytest.mark.parametrize("kind", CALLS)
def test_results_have_pytorchs_types(kind):
    """complex32, which only the peer has, is complex64 here."""
    import torch

    import disttrain

    wrong = []
    for call in CALLS[kind]:
        mine, other = _type(disttrain, call), _type(torch, call)
        if "complex32" not in other and "an error" not in (mine, other) and mine != other:
            wrong.append(f"{call}: {mine}, PyTorch's {other}")
        if mine == "an error" != other and "complex32" not in other:
            wrong.append(f"{call}: refused, PyTorch's {other}")
    assert not wrong, f"{len(wrong)} of {len(CALLS[kind])}:\n" + "\n".join(wrong[:20])
