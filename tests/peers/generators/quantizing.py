"""Quantized tensors, observers, layers and training with rounding, drawn by a seed, here and in
PyTorch: what differs, as text."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from disttrain import quantize
from disttrain.quantize import types
from disttrain.quantize.layers import embedding, linear

KINDS = ("qint8", "quint8", "qint32")


def _array(draw: random.Random, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(draw.randrange(1 << 30))
    scale = 10 ** draw.uniform(-3, 3)
    return (rng.normal(draw.uniform(-2, 2), 1, shape) * scale).astype(np.float32)


def _shape(draw: random.Random, dims: int | None = None) -> tuple[int, ...]:
    return tuple(draw.randint(1, 7) for _ in range(dims or draw.randint(1, 4)))


def _near(got: Any, want: Any, rtol: float = 1e-6, atol: float = 0.0) -> bool:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return got.shape == want.shape and np.allclose(got, want, rtol, atol, equal_nan=True)


# --- tensors -------------------------------------------------------------------------------------
def tensors(dt: Any, torch: Any, draw: random.Random) -> list[str]:
    """Rounding to grids, and back."""
    x = _array(draw, *_shape(draw))
    if draw.random() < 0.2:
        x.ravel()[draw.randrange(x.size)] = draw.choice((np.inf, -np.inf))
    kind = draw.choice(KINDS)
    low, high = types.limits(getattr(types, kind))
    spread = np.abs(x[np.isfinite(x)]).max(initial=1e-3)
    scale = float(np.float32(spread / draw.choice((3, 60, 127, 500))))
    zero = 0 if kind == "qint32" else draw.randint(low, high)
    args = (scale, zero)
    mine = quantize.quantize_per_tensor(dt.tensor(x), *args, getattr(types, kind))
    theirs = torch.quantize_per_tensor(torch.from_numpy(x), *args, getattr(torch, kind))
    return _compared(mine, theirs, f"per tensor {kind} {args}")


def _compared(mine: Any, theirs: Any, what: str) -> list[str]:
    out = []
    if not np.array_equal(mine.int_repr().numpy(), theirs.int_repr().numpy()):
        out.append(f"{what}: integers")
    if not _near(mine.dequantize().numpy(), theirs.dequantize().numpy()):
        out.append(f"{what}: numbers")
    if str(mine.qscheme()).rpartition(".")[2] != str(theirs.qscheme()).rpartition(".")[2]:
        out.append(f"{what}: {mine.qscheme()} for {theirs.qscheme()}")
    return out


def channels(dt: Any, torch: Any, draw: random.Random) -> list[str]:
    """Grids for each channel."""
    shape = _shape(draw)
    x, axis = _array(draw, *shape), draw.randrange(len(shape))
    kind = draw.choice(KINDS[:2])
    low, high = types.limits(getattr(types, kind))
    n = shape[axis]
    scales = np.array([np.abs(x).max() / draw.uniform(20, 300) for _ in range(n)], np.float32)
    if draw.random() < 0.3 and kind == "quint8":
        zeros = np.array([draw.uniform(low, high) for _ in range(n)], np.float32)
    else:
        zeros = np.array([draw.randint(low, high) for _ in range(n)], np.int64)
    given = (scales, zeros)
    mine = quantize.quantize_per_channel(
        dt.tensor(x), *map(dt.tensor, given), axis, getattr(types, kind)
    )
    theirs = torch.quantize_per_channel(
        torch.from_numpy(x), *map(torch.from_numpy, given), axis, getattr(torch, kind)
    )
    return _compared(mine, theirs, f"per channel {kind} {axis} {zeros.dtype}")


def dynamic_tensors(dt: Any, torch: Any, draw: random.Random) -> list[str]:
    """Grids from what is there."""
    x, reduce = _array(draw, *_shape(draw)), draw.random() < 0.5
    kind = draw.choice(KINDS[:2])
    mine = quantize.quantize_per_tensor_dynamic(dt.tensor(x), getattr(types, kind), reduce)
    theirs = torch.quantize_per_tensor_dynamic(torch.from_numpy(x), getattr(torch, kind), reduce)
    if theirs.q_scale() <= 6.2e-5:  # where PyTorch's grids stop to become finer
        return []
    found = _compared(mine, theirs, f"dynamic {kind} {reduce}")
    if not _near(mine.q_scale(), theirs.q_scale()) or mine.q_zero_point() != theirs.q_zero_point():
        found.append(f"dynamic {kind}: grid")
    return found


def faked(dt: Any, torch: Any, draw: random.Random) -> list[str]:
    """Rounding with gradients."""
    shape = _shape(draw)
    x, per = _array(draw, *shape), draw.random() < 0.5
    low, high = draw.choice(((0, 255), (-128, 127), (0, 127), (-8, 7)))
    axis, spread = draw.randrange(len(shape)), float(np.abs(x).max()) / draw.uniform(3, 300)
    a, b = dt.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    if per:
        n = shape[axis]
        scale = np.array([spread * draw.uniform(0.5, 2) for _ in range(n)], np.float32)
        zero = np.array([draw.randint(low, high) for _ in range(n)], np.int32)
        mine = quantize.fake_quantize_per_channel_affine(
            a, dt.tensor(scale), dt.tensor(zero), axis, low, high
        )
        theirs = torch.fake_quantize_per_channel_affine(
            b, torch.tensor(scale), torch.tensor(zero), axis, low, high
        )
    else:
        one = (float(np.float32(spread)), draw.randint(low, high), low, high)
        mine = quantize.fake_quantize_per_tensor_affine(a, *one)
        theirs = torch.fake_quantize_per_tensor_affine(b, *one)
    g = _array(draw, *shape)
    mine.backward(dt.tensor(g))
    theirs.backward(torch.tensor(g))
    out = []
    if not _near(mine.detach().numpy(), theirs.detach().numpy()):
        out.append(f"fake {per} {low}: numbers")
    if not _near(a.grad.numpy(), b.grad.numpy()):
        out.append(f"fake {per} {low}: gradients")
    return out


# --- observers -----------------------------------------------------------------------------------
_OBSERVERS = ("MinMaxObserver", "MovingAverageMinMaxObserver", "PerChannelMinMaxObserver",
              "MovingAveragePerChannelMinMaxObserver", "HistogramObserver")  # fmt: skip


def observed(dt: Any, torch: Any, draw: random.Random) -> list[str]:
    """Grids of observers."""
    name = draw.choice(_OBSERVERS)
    kind = draw.choice(KINDS[:2])
    per = "PerChannel" in name
    lie = draw.choice(("affine", "symmetric", "affine_float_qparams")[: 3 if per else 2])
    scheme = f"per_{'channel' if per else 'tensor'}_{lie}"
    refused = lie == "symmetric" and kind == "quint8"
    more: dict[str, Any] = {"reduce_range": draw.random() < 0.3 and not refused}
    if draw.random() < 0.3:
        more |= {"quant_min": 0, "quant_max": 127}
    if "Moving" in name:
        more["averaging_constant"] = draw.choice((0.01, 0.3, 1))
    if per:
        more["ch_axis"] = axis = draw.randrange(2)

    def made(where: Any, module: Any) -> Any:
        cls = getattr(module, name)
        return cls(dtype=getattr(where, kind), qscheme=getattr(where, scheme), **more)

    mine, theirs = made(types, quantize), made(torch, torch.ao.quantization)
    n, data = draw.randint(1, 6), []
    for _ in range(draw.randint(1, 4)):
        shape = _shape(draw, 3)
        if per:
            shape = tuple(n if d == axis else s for d, s in enumerate(shape))
        x = _array(draw, *shape)
        data.append(x)
        mine(dt.tensor(x))
        theirs(torch.tensor(x))
    what = f"{name} {kind} {scheme} {more}"
    try:
        other = [t.numpy() for t in theirs.calculate_qparams()]
    except AssertionError:  # its averages of equal limits differ by rounding, which it refuses
        return []
    ours = [t.numpy() for t in mine.calculate_qparams()]
    if name == "HistogramObserver":
        return _histograms(mine, ours, other, data, what)
    out = []
    if not _near(ours[0], other[0], 1e-5):
        out.append(f"{what}: scales {ours[0]} for {other[0]}")
    if not np.allclose(ours[1], other[1], 1e-4, 1e-4 if lie.endswith("qparams") else 0):
        out.append(f"{what}: zero points {ours[1]} for {other[1]}")
    return out


def _histograms(mine: Any, ours: list, other: list, data: list, what: str) -> list[str]:
    """The limits are found in other ways; they may not lose more."""
    values = np.concatenate([x.ravel() for x in data]).astype(np.float64)
    lost = []
    for scale, zero in (ours, other):
        levels = np.clip(np.rint(values / scale) + zero, mine.quant_min, mine.quant_max)
        lost.append((((levels - zero) * scale - values) ** 2).mean())
    return [f"{what}: loses {lost[0]:.3g} for {lost[1]:.3g}"] if lost[0] > 1.5 * lost[1] else []


# --- layers --------------------------------------------------------------------------------------
def _linear(dt: Any, torch: Any, draw: random.Random) -> tuple[Any, Any, int]:
    k, n = draw.randint(1, 130), draw.randint(1, 40)
    peer = torch.nn.Linear(k, n, bias=draw.random() < 0.8)
    mine = dt.nn.Linear(k, n, bias=peer.bias is not None)
    _copied(dt, peer, mine)
    return mine, peer, k


def _copied(dt: Any, peer: Any, mine: Any) -> None:
    mine.load_state_dict({k: dt.tensor(v.detach().numpy()) for k, v in peer.state_dict().items()})


def dynamic_linear(dt: Any, torch: Any, draw: random.Random) -> list[str]:
    """Dynamic Linear, with PyTorch's products on the same grid."""
    torch.manual_seed(draw.randrange(1 << 30))
    mine, peer, k = _linear(dt, torch, draw)
    x = _array(draw, *_shape(draw, draw.randint(1, 2)), k)
    spec = {"": getattr(quantize, name := draw.choice(_DYNAMIC))}
    got = linear.DynamicLinear.from_float(_with(mine, spec[""]))
    want = torch.ao.nn.quantized.dynamic.Linear.from_float(
        _with(peer, getattr(torch.ao.quantization, name))
    )
    out = []
    if not np.array_equal(got.weight().int_repr().numpy(), want.weight().int_repr().numpy()):
        out.append(f"{name}: weights")
    ours = got(dt.tensor(x)).numpy()
    packed = want._packed_params._packed_params
    theirs = torch.ops.quantized.linear_dynamic(torch.tensor(x), packed, False).detach().numpy()
    reach = np.abs(x).max()
    if reach < 0.02:  # where PyTorch's grids stop to become finer
        return out
    # PyTorch's kernels add the zero point before they round, so that a number near the middle may
    # become the other neighbour: of a step of x, times a weight.
    step = (x.max(initial=0) - x.min(initial=0)) / 255 * np.abs(got.weight().dequantize().numpy())
    apart = np.abs(ours - theirs)
    if np.median(apart) > 1e-5 * np.abs(theirs).max() or apart.max() > 2.02 * step.max():
        out.append(f"{name} {x.shape}: results {apart.max():.3g} apart")
    return out


_DYNAMIC = ("default_dynamic_qconfig", "per_channel_dynamic_qconfig")


def _with(module: Any, qconfig: Any) -> Any:
    module.qconfig = qconfig
    return module


def static(dt: Any, torch: Any, draw: random.Random) -> list[str]:
    """Calibrated layers: integers, of which one in 2,000 may be one apart (PyTorch adds the bias
    before it multiplies by the scales)."""
    torch.manual_seed(draw.randrange(1 << 30))
    which = draw.choice(("linear", 1, 2, 3))
    if which == "linear":
        mine, peer, k = _linear(dt, torch, draw)
        x = _array(draw, draw.randint(1, 9), k)
    else:
        mine, peer, x = _conv(dt, torch, draw, which)
    backend = draw.choice(("x86", "onednn"))
    activation = {"reduce_range": backend == "x86"}
    pairs = []
    for package, module, data in (
        (quantize, mine, dt.tensor(x)), (torch.ao.quantization, peer, torch.tensor(x)),
    ):  # fmt: skip
        qconfig = package.QConfig(
            package.MinMaxObserver.with_args(**activation),
            package.get_default_qconfig(backend).weight,
        )
        whole = _with(package.QuantWrapper(module).eval(), qconfig)
        prepared = package.prepare(whole)
        prepared(data)
        pairs.append(package.convert(prepared))
    ours, theirs = (m.module(m.quant(d)) for m, d in zip(pairs, (dt.tensor(x), torch.tensor(x))))
    what = f"{backend} {peer}"
    if not _near(ours.q_scale(), theirs.q_scale(), 1e-4):
        return [f"{what}: scale {ours.q_scale()} for {theirs.q_scale()}"]
    apart = ours.int_repr().int().numpy() - theirs.int_repr().int().numpy()
    if np.abs(apart).max(initial=0) > 1 or (apart != 0).sum() > 1 + apart.size / 2000:
        return [f"{what}: {(apart != 0).mean():.3f} apart, by {np.abs(apart).max()}"]
    return []


def _conv(dt: Any, torch: Any, draw: random.Random, dims: int) -> tuple[Any, Any, np.ndarray]:
    groups = draw.choice((1, 1, 2, 3))
    each = draw.randint(1, 3)
    channels, out = groups * each, groups * draw.randint(1, 3)
    given = {
        "kernel_size": draw.randint(1, 3), "stride": draw.randint(1, 2),
        "padding": draw.randint(0, 2), "dilation": draw.randint(1, 2), "groups": groups,
        "bias": draw.random() < 0.7,
    }  # fmt: skip
    peer = getattr(torch.nn, f"Conv{dims}d")(channels, out, **given)
    mine = getattr(dt.nn, f"Conv{dims}d")(channels, out, **given)
    _copied(dt, peer, mine)
    return mine, peer, _array(draw, draw.randint(1, 3), channels, *(draw.randint(5, 8),) * dims)


def tables(dt: Any, torch: Any, draw: random.Random) -> list[str]:
    """Tables of 8 bits."""
    torch.manual_seed(draw.randrange(1 << 30))
    rows, width = draw.randint(1, 30), 4 * draw.randint(1, 5)
    index = np.array([[draw.randrange(rows) for _ in range(4)] for _ in range(3)])
    bags = draw.random() < 0.5
    peer = (
        torch.nn.EmbeddingBag(rows, width, mode="sum") if bags else torch.nn.Embedding(rows, width)
    )
    mine = dt.nn.EmbeddingBag(rows, width, mode="sum") if bags else dt.nn.Embedding(rows, width)
    _copied(dt, peer, mine)
    name = "EmbeddingBag" if bags else "Embedding"
    got = getattr(embedding, name).from_float(
        _with(mine, quantize.float_qparams_weight_only_qconfig)
    )
    want = getattr(torch.ao.nn.quantized, name).from_float(
        _with(peer, torch.ao.quantization.float_qparams_weight_only_qconfig)
    )
    out = []
    if not np.array_equal(got.weight().int_repr().numpy(), want.weight().int_repr().numpy()):
        out.append(f"{name}: integers")
    if not _near(got(dt.tensor(index)).numpy(), want(torch.tensor(index)).numpy(), 1e-4, 1e-5):
        out.append(f"{name}: rows")
    return out


def recurrent(dt: Any, torch: Any, draw: random.Random) -> list[str]:
    """Recurrent networks: as near to the float network as PyTorch's, or nearly so."""
    torch.manual_seed(draw.randrange(1 << 30))
    name, width, hidden = draw.choice(("LSTM", "GRU")), draw.randint(1, 20), draw.randint(1, 20)
    given = {
        "num_layers": draw.randint(1, 2), "bidirectional": draw.random() < 0.4,
        "batch_first": draw.random() < 0.5,
    }  # fmt: skip
    peer = getattr(torch.nn, name)(width, hidden, **given)
    mine = getattr(dt.nn, name)(width, hidden, **given)
    _copied(dt, peer, mine)
    rng = np.random.default_rng(draw.randrange(1 << 30))
    x = rng.normal(size=(draw.randint(1, 6), draw.randint(1, 4), width)).astype(np.float32)
    true = peer(torch.tensor(x))[0].detach().numpy()
    got = quantize.quantize_dynamic(dt.nn.Sequential(mine))[0](dt.tensor(x))[0].numpy()
    want = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(peer))[0]
    theirs = want(torch.tensor(x))[0].detach().numpy()
    errors = [np.abs(y - true).max() for y in (got, theirs)]
    return [f"{name}: errors {errors}"] if errors[0] > 1.5 * errors[1] + 0.01 else []


# --- operations and training ---------------------------------------------------------------------
_OPERATIONS: dict[str, Callable] = {
    "relu": lambda m, F, x: F.relu(x),
    "max_pool": lambda m, F, x: F.max_pool2d(x, 2),
    "avg_pool": lambda m, F, x: F.avg_pool2d(x, 2),
    "adaptive": lambda m, F, x: F.adaptive_avg_pool2d(x, (1, 1)),
    "mean": lambda m, F, x: x.mean((2, 3)),
    "flatten": lambda m, F, x: m.flatten(x, 1),
    "permute": lambda m, F, x: x.permute(0, 2, 3, 1),
    "index": lambda m, F, x: x[:, 1:],
    "cat": lambda m, F, x: m.cat([x, x], 1),
    "clamp": lambda m, F, x: m.clamp(x, -0.5, 0.7),
    "sigmoid": lambda m, F, x: m.sigmoid(x),
    "tanh": lambda m, F, x: m.tanh(x),
    "relu6": lambda m, F, x: F.relu6(x),
}


def operations(dt: Any, torch: Any, draw: random.Random) -> list[str]:
    """Functions of quantized tensors."""
    name = draw.choice(sorted(_OPERATIONS))
    rng = np.random.default_rng(draw.randrange(1 << 30))
    x = rng.normal(size=(2, 3, 4, 6)).astype(np.float32)
    grid = (draw.uniform(0.01, 0.1), draw.randint(20, 220))
    mine = quantize.quantize_per_tensor(dt.tensor(x), *grid, types.quint8)
    theirs = torch.quantize_per_tensor(torch.tensor(x), *grid, torch.quint8)
    got = _OPERATIONS[name](dt, dt.nn.functional, mine)
    want = _OPERATIONS[name](torch, torch.nn.functional, theirs)
    if not _near(got.q_scale(), want.q_scale()) or got.q_zero_point() != want.q_zero_point():
        return [f"{name}: grid {got.q_scale()}, {got.q_zero_point()} for {want.q_scale()}"]
    apart = np.abs(got.int_repr().int().numpy() - want.int_repr().int().numpy())
    allowed = 1 if name in ("avg_pool", "adaptive", "mean", "sigmoid", "tanh") else 0
    return [f"{name}: {apart.max()} apart"] if apart.max() > allowed else []


def trained(dt: Any, torch: Any, draw: random.Random) -> list[str]:
    """Steps of training with rounding, with normalisation in the convolution or without."""
    torch.manual_seed(draw.randrange(1 << 30))
    rng = np.random.default_rng(draw.randrange(1 << 30))
    x, y = rng.normal(size=(8, 2, 6, 6)).astype(np.float32), rng.integers(0, 3, 8)
    normal = draw.random() < 0.5
    backend, losses, models = draw.choice(("x86", "onednn", "qnnpack")), [], []
    first: Any = None
    version = draw.randint(0, 1)
    for m, package in ((torch, torch.ao.quantization), (dt, quantize)):
        layers = [m.nn.Conv2d(2, 4, 3), *([m.nn.BatchNorm2d(4)] if normal else []), m.nn.ReLU(),
                  m.nn.Flatten(), m.nn.Linear(64, 3)]  # fmt: skip
        net = m.nn.Sequential(*layers)
        if first is None:
            first = copy.deepcopy(net)
        else:
            _copied(dt, first, net)
        net = package.QuantWrapper(net.train())
        net.qconfig = package.get_default_qat_qconfig(backend, version)
        names = [f"module.{k}" for k in range(3 if normal else 2)]
        net = package.prepare_qat(package.fuse_modules_qat(net, [names]))
        step = m.optim.SGD(net.parameters(), lr=0.05)
        seen = []
        for _ in range(4):
            step.zero_grad()
            loss = m.nn.functional.cross_entropy(net(m.tensor(x)), m.tensor(y))
            loss.backward()
            step.step()
            seen.append(float(loss.detach()))
        losses.append(seen)
        models.append(package.convert(net.eval()))
    if not np.allclose(losses[0], losses[1], 2e-2, 2e-2):
        return [f"training {normal} {backend}: losses {losses}"]
    theirs, ours = (mod(m.tensor(x)).detach().numpy() for m, mod in zip((torch, dt), models))
    apart = np.abs(theirs - ours).max() / np.abs(theirs).max()
    return [f"training {normal} {backend}: results {apart:.3f} apart"] if apart > 0.02 else []


CASES = {
    case.__name__: case
    for case in (
        tensors, channels, dynamic_tensors, faked, observed, dynamic_linear, static, tables,
        recurrent, operations, trained,
    )
}  # fmt: skip


def differences(name: str, dt: Any, torch: Any, seed: str) -> list[str]:
    """What differs for a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = CASES[name](dt, torch, random.Random(seed))
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
    return [f"{seed}: {text}" for text in found]


__all__ = ["CASES", "differences"]
