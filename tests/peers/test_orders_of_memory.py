"""Results and gradients of images in channels_last order lie in memory as PyTorch's do."""

from __future__ import annotations

import types
from typing import Any

import pytest

import disttrain as dt

UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp
exp2 expm1 floor frac i0 lgamma log log10 log1p log2 logit nan_to_num neg positive rad2deg
reciprocal round rsqrt sigmoid sign sgn sin sinc sinh sqrt square tan tanh trunc relu isnan isinf
isfinite signbit logical_not angle conj_physical clone zeros_like ones_like empty_like""".split()
BINARY = """add sub mul div pow atan2 fmod remainder maximum minimum fmax fmin hypot copysign eq ne
lt le gt ge logical_and logaddexp xlogy nextafter ldexp float_power""".split()
ACTIVATIONS = """relu relu6 elu selu celu leaky_relu gelu silu mish softplus softsign hardtanh
hardswish hardsigmoid hardshrink softshrink tanhshrink normalize dropout dropout2d
alpha_dropout feature_alpha_dropout instance_norm""".split()


def cases(T: Any, F: Any) -> dict[str, Any]:
    """What is called with an image, by name."""
    ones = lambda *sizes: T.ones(*sizes)
    out: dict[str, Any] = {n: getattr(T, n) for n in UNARY}
    for n in BINARY:
        fn = getattr(T, n)
        out[f"{n} of two"] = lambda x, fn=fn: fn(x, x + 1)
        out[f"{n} with a number"] = lambda x, fn=fn: fn(x, T.tensor(2.0))
        out[f"{n} with channels"] = lambda x, fn=fn: fn(x, ones(3, 1, 1))
        out[f"{n} with a row"] = lambda x, fn=fn: fn(x, ones(5))
        out[f"{n} behind another order"] = lambda x, fn=fn: fn(ones(2, 3, 4, 5), x)
    out |= {f"F.{n}": getattr(F, n) for n in ACTIVATIONS}
    for mode in ("constant", "reflect", "replicate", "circular"):
        out[f"pad {mode}"] = lambda x, mode=mode: F.pad(x, (1, 1, 1, 1), mode=mode)
    for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
        out[f"interpolate {mode}"] = lambda x, mode=mode: F.interpolate(
            x, scale_factor=2, mode=mode
        )
    zeros, one = T.zeros(3), T.ones(3)
    return out | {
        "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
        "where": lambda x: T.where(x > 0, x, T.zeros(())),
        "lerp": lambda x: T.lerp(x, x + 1, 0.5),
        "addcmul": lambda x: T.addcmul(x, x, x),
        "clamp": lambda x: x.clamp(0, 1),
        "double": lambda x: x.double(),
        "cat": lambda x: T.cat([x, x], 1),
        "a chain": lambda x: ((x * 2 + 1).relu() - x).sigmoid(),
        "relu of a square": lambda x: (x * x).relu(),
        "permuted": lambda x: F.relu(x.permute(0, 2, 3, 1)),
        "batch norm": lambda x: F.batch_norm(x, zeros + 0, one + 0, one, zeros, training=True),
        "batch norm, evaluation": lambda x: F.batch_norm(x, zeros, one, training=False),
        "group norm": lambda x: F.group_norm(x, 3),
        "layer norm": lambda x: F.layer_norm(x, (3, 4, 5)),
        "max_pool2d": lambda x: F.max_pool2d(x, 2),
        "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
        "lp_pool2d": lambda x: F.lp_pool2d(x, 2.0, 2),
        "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
        "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
        "conv2d": lambda x: F.conv2d(x, ones(4, 3, 3, 3)),
        "conv_transpose2d": lambda x: F.conv_transpose2d(x, ones(3, 4, 3, 3)),
        "prelu": lambda x: F.prelu(x, one),
        "grid_sample": lambda x: F.grid_sample(x, T.zeros(2, 4, 5, 2)),
        "in place": lambda x: x.clone().mul_(2).add_(1),
    }


def orders(x: Any, fn: Any) -> tuple:
    x = x.clone().requires_grad_()
    out = fn(x)
    if not out.requires_grad:
        return out.stride(), None
    out.sum().backward()
    return out.stride(), x.grad.stride()


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_results_and_gradients_lie_as_those_of_pytorch():
    import torch

    sides: list[Any] = [types.SimpleNamespace(lib=torch, F=torch.nn.functional),
                        types.SimpleNamespace(lib=dt, F=dt.nn.functional)]  # fmt: skip
    theirs, ours = (cases(s.lib, s.F) for s in sides)
    numbers = torch.rand(2, 3, 4, 5).add(0.1).tolist()
    for name, fn in theirs.items():
        x, y = (s.lib.tensor(numbers).to(memory_format=s.lib.channels_last) for s in sides)
        assert orders(y, ours[name]) == orders(x, fn), name
