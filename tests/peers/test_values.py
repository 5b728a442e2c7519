"""Single calls at the edges of what they are defined for do what PyTorch's do."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

pytestmark = pytest.mark.peer

LIMITS = "T.tensor([0.0, 1.0, 2.0, 30.0, np.inf, np.nan, -1.0], dtype=T.float64)"
SMALL = "T.tensor([1e-19 + 1e-19j, 1e-10 + 1e-10j, -2 + 0j, 3 + 4j, -1e-8 + 1e-4j, 0j, 1e-3j])"
CALLS = [
    *(f"T.{f}(({LIMITS})[:, None], ({LIMITS})[None])" for f in ("igamma", "igammac", "hypot",
      "atan2", "fmod", "remainder", "xlogy", "nextafter", "copysign", "logaddexp")),
    *(f"T.{f}(T.tensor([1.0, 2, 5, 7]).to(T.{k}), T.tensor([1.0, 3, 2, 30]).to(T.{k}))"
      for f in ("igamma", "igammac") for k in ("float16", "bfloat16", "float32")),
    *(f"T.{f}({SMALL}.to(T.{k}))" for f in ("log1p", "expm1", "log", "sqrt", "exp", "tanh", "atan",
      "sin", "cos", "rsqrt") for k in ("complex64", "complex128")),
    *(f"T.histc(T.tensor([2.0, 2, 2, 3, 1]), 4, {low}, {high})"
      for low, high in ((2, 2), (0, 0), (5, 5), (1, 2), (3, 1), (-1, 9))),
    "T.histc(T.tensor([2.0, 2.0]), 4, 5, 5)", "T.histc(T.tensor([2.0, np.inf]), 4)",
    "T.histc(T.tensor([]), 4)",
    *(f"T.zeros(3, dtype=T.{k}).uniform_({low}, {high}) * 0" for k in ("float16", "float32",
      "float64", "bfloat16") for low, high in ((0, 1e6), (0, 1e39), (-3e38, 3e38), (2, 1),
      (-float("inf"), 1), (0, float("nan")), (-1, 1), (-6e4, 6e4), (1, 1))),
    *(f"T.zeros(3).{call} * 0" for call in ("normal_(0, -1)", "exponential_(-1)", "exponential_(0)",
      "cauchy_(0, 0)", "log_normal_(0, -1)", "geometric_(0)", "geometric_(1.5)", "random_(3, 3)",
      "random_(5, 3)", "bernoulli_(1.5)")),
    *(f"T.zeros(3, dtype=T.{k}).index_add(0, T.tensor([1, 1]), T.ones(2).to(T.{k}), alpha={a})"
      for k in ("bool", "int32", "float32", "float16", "complex64") for a in (1, 2, True, 1.5)),
    *(f"T.{f}(T.zeros(3, dtype=T.bool), 0, T.tensor([1, 1]), T.ones(2).bool())"
      for f in ("index_add", "scatter_add", "index_copy")),
    *(f"T.bincount(T.tensor([0, 1, 1]), weights=T.ones(3).to(T.{k}))"
      for k in ("float16", "float32", "float64", "int32")),
    *(f"[x.tolist() for x in (b := T.zeros(8), v := b[{cut}], {call})]"
      for cut in ("::2", "2:4", "4:") for call in ("T.arange(3, out=v)",
      "T.linspace(0, 1, 4, out=v)", "T.arange(9.0, out=v)")),
    "T.asarray(bytearray(8)).tolist()", "T.asarray(bytearray(8), dtype=T.int16).tolist()",
    "T.asarray([1, 2], copy=False)", "T.asarray(memoryview(bytearray(4)), dtype=T.uint8)",
    "(b := bytearray(8), T.asarray(b, dtype=T.float32).fill_(1), bytes(b))[2]",
    "(a := np.zeros(3), T.asarray(a).fill_(1), T.asarray(a, copy=True).fill_(2), a.tolist())[3]",
    "(a := np.zeros(3), T.asarray(a, dtype=T.float32).fill_(1), a.tolist())[2]",
]  # fmt: skip


def _outcome(T, call):
    try:
        found = eval(call, {"T": T, "np": np})
    except Exception:
        return "an error"
    return np.asarray(found.to(T.complex128).numpy()) if isinstance(found, T.Tensor) else found


@pytest.mark.filterwarnings("ignore")
def test_calls_at_the_edges_give_what_pytorchs_give():
    import torch

    import disttrain

    wrong = []
    for call in CALLS:
        mine, other = _outcome(disttrain, call), _outcome(torch, call)
        if isinstance(mine, np.ndarray) and isinstance(other, np.ndarray):
            narrow = 3e-3 if "float16" in call else 5e-6
            same = mine.shape == other.shape and np.allclose(mine, other, narrow, 1e-25, True)
        else:
            same = type(mine) is type(other) and mine == other
        if not same:
            wrong.append(f"{call}:\n  ours    {mine}\n  PyTorch {other}")
    assert not wrong, f"{len(wrong)} of {len(CALLS)}:\n" + "\n".join(wrong)


# --- resizing ------------------------------------------------------------------------------------
MODES = {1: ("nearest", "nearest-exact", "linear"), 2: ("nearest", "nearest-exact", "bilinear",
         "bicubic"), 3: ("nearest", "nearest-exact", "trilinear")}  # fmt: skip
SCALES = (1.0, 1.02, 1.1, 1.15, 2.0, 2.1, 0.5, 1.5, 0.9, 3.3)


@pytest.mark.parametrize("n", MODES)
def test_sizes_and_scales_resize_as_in_pytorch(n):
    import torch

    import disttrain

    rng, data = random.Random(n), np.random.default_rng(n)
    for _ in range(250):
        mode = rng.choice(MODES[n])
        shape = [1, 2, *(rng.randint(2, 6) for _ in range(n))]
        asked = {"scale_factor": tuple(rng.choice(SCALES) for _ in range(n))}
        if rng.random() < 0.3:
            asked = {"size": tuple(rng.randint(1, 8) for _ in range(n))}
        elif rng.random() < 0.3:
            asked["recompute_scale_factor"] = True
        if "linear" in mode or mode == "bicubic":
            asked["align_corners"] = rng.choice((True, False))
        kind = rng.choice(("float32", "float64", "uint8" if n == 2 else "float32"))
        x = (data.normal(size=shape) * 50 + 100).clip(0, 255).astype(kind)
        if kind == "uint8" and mode == "nearest-exact":
            continue
        mine, other = (
            T.nn.functional.interpolate(T.tensor(x), mode=mode, **asked).numpy().astype(np.float64)
            for T in (disttrain, torch)
        )
        assert mine.shape == other.shape, (mode, shape, asked)
        atol = 1.0 if kind == "uint8" else 1e-3
        assert np.allclose(mine, other, 0, atol), (mode, shape, asked, kind)


# --- gradients of what is empty, or of norms at their edges -------------------------------------
LAYERS = ("BatchNorm1d(3)", "LayerNorm(3)", "GroupNorm(3, 3)", "GroupNorm(1, 3)", "RMSNorm(3)",
          "BatchNorm1d(3).eval()", "Linear(3, 2)", "Embedding(3, 2, scale_grad_by_freq=True)",
          "PReLU(3)")  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_gradients_of_an_empty_batch_are_zeros(layer):
    import torch

    import disttrain

    found = []
    for T in (disttrain, torch):
        module = eval(f"T.nn.{layer}", {"T": T})
        x = T.zeros(0, 3, dtype=T.int64 if "Embedding" in layer else T.float32)
        out = module(x if "Embedding" in layer else x.requires_grad_())
        out.sum().backward()
        found.append([tuple(out.shape), *(p.grad.tolist() for p in module.parameters()),
                      *(b.tolist() for b in module.buffers())])  # fmt: skip
    assert found[0] == found[1]


NORMS = [*itertools.product((0.5, 1, 2, 3, float("inf")), (0.5, 2, 50))]


@pytest.mark.parametrize("p, limit", NORMS)
def test_renormed_slices_and_their_gradients(p, limit):
    import torch

    import disttrain

    data = np.random.default_rng(0).normal(size=(3, 4)) * 3
    data[0] = 0
    found = []
    for T in (disttrain, torch):
        x = T.tensor(data, requires_grad=True)
        out = T.renorm(x, p, 0, limit)
        (grad,) = T.autograd.grad((out * out).sum() + out.sum(), x, create_graph=True)
        second = T.autograd.grad((grad * grad)[1:].sum(), x)[0][1:] if p >= 1 else x[1:]
        kept = out, (grad if p >= 1 else grad[1:]), second
        found.append([t.detach().numpy() for t in kept])
    for mine, other in zip(*found, strict=True):
        assert np.allclose(mine, other, 1e-7, 1e-9), (mine, other)


def test_gradients_scaled_by_frequency_keep_their_digits():
    import disttrain as dt

    for kind in (dt.float64, dt.float32):
        layer = dt.nn.Embedding(3, 2, scale_grad_by_freq=True, dtype=kind)
        layer(dt.tensor([0, 0, 0, 1])).sum().backward()
        assert layer.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
