"""Drawn training steps that mix what a capture treats apart: operations on rows, batches whose
lengths change, plain numbers as arguments (learning rates, scales, counts), state of Python's that
changes between calls, DDP with its ways of a step, loss scaling, and products of few rows."""

from __future__ import annotations

import functools
import math
import random
import re
from typing import Any, NamedTuple

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn, optim

WIDTH, CLASSES = 8, 3
LENGTHS = [1, 2, 2, 3, 4, 5, 8, 9, 17, 33]
LAYERS = [
    "nn.LayerNorm(WIDTH)", "nn.RMSNorm(WIDTH)", "nn.Linear(WIDTH, WIDTH)", "nn.GELU()", "nn.SiLU()",
    "nn.Linear(WIDTH, WIDTH, bias=False)", "nn.Softmax(-1)", "nn.Dropout(0.2)", "Residual()",
    "Steered()", "nn.Tanh()",
]  # fmt: skip
BEFORE = [
    "x = x * s", "x = x / s", "x = x + n", "x = x * len(x)", "x = x + math.sqrt(len(x))",
    "x = x * dist.get_rank() if dist.is_initialized() else x * 2", "x = x - x.mean(0)",
    "x = F.softmax(x * s, -1)", "x = F.layer_norm(x, (WIDTH,)) * s", "x = x[: max(1, len(x) - 1)]",
    "x = x * (2.0 if s > 0.5 else 0.5)", "x = x * (1 if n % 2 else 3)", "x = x * state['gain']",
    "x = dt.cat([x, x[:1]])", "x = x + math.log1p(s) / n",
    "x = x.reshape(-1, 2).reshape(-1, WIDTH)",
    "x = x + dt.arange(len(x)).float().unsqueeze(1) / n", "x = x * x.shape[0] ** -0.5",
    "x = x * s ** n", "x = x.clamp(-s, n)", "x = x[:: 2 if n > 4 else 1]", "x = x + bool(n)",
    "x = x * round(s, 1)", "x = x * int(s * 10)", "state['rows'] = len(x)",
    "state['n'], state['s'] = n, s", "x = x * tabled(n)", "x = x + tabled(s)",
    "x = dt.nn.functional.pad(x, (0, 0, 0, n))",
]  # fmt: skip
LOSSES = [
    "F.cross_entropy(out, y[: 1].expand(len(out)))", "(out.softmax(-1) * s).sum()",
    "out.log_softmax(-1)[:, 0].mean() * s", "(out * out).mean() / n",
    "F.cross_entropy(out, y[: 1].expand(len(out)), label_smoothing=0.1)",
    "out.sum() / len(out) + s", "F.mse_loss(out, out.detach().tanh() * s)",
]  # fmt: skip
ZEROED = ["opt.zero_grad()", "opt.zero_grad(set_to_none=False)"]
AFTER = [
    "nn.utils.clip_grad_norm_(model.parameters(), s)",
    "nn.utils.clip_grad_value_(model.parameters(), 0.1)",
    "[p.grad.mul_(s) for p in model.parameters() if p.grad is not None]",
    "opt.param_groups[0]['weight_decay'] = 0.01 * n",
]  # fmt: skip
RATES = ["opt.param_groups[0]['lr'] = lr", "for g in opt.param_groups: g['lr'] = lr"]
OPTIMIZERS = [
    "optim.SGD(ps, 0.1)", "optim.SGD(ps, 0.1, momentum=0.9)", "optim.AdamW(ps, 0.01)",
    "optim.Adam(ps, 0.01, amsgrad=True)", "optim.RMSprop(ps, 0.01)",
]  # fmt: skip


def _tabled(n: float) -> float:
    return n * 0.5 + 1


class Residual(nn.Module):
    """Few columns and back."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(WIDTH, 2), nn.Linear(2, WIDTH)

    def forward(self, x: Any) -> Any:
        """Of rows."""
        return x + self.up(F.gelu(self.down(x)))


class Steered(nn.Module):
    """Its attributes are changed between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.power, self.extra = nn.Parameter(dt.ones(WIDTH)), 1.0, None
        self.register_buffer("seen", dt.zeros(()))

    def forward(self, x: Any) -> Any:
        """Of rows."""
        if self.training:
            self.seen += 1
        out = x * self.weight * self.power
        return out if self.extra is None else out + self.extra


class Drawn(NamedTuple):
    """``source`` of a step, ``layers`` and ``optimizer`` as texts; ``calls``: lengths by rank and
    numbers, ``changes`` before them."""

    source: str
    layers: list[str]
    optimizer: str
    wrapped: bool
    scaled: bool
    joined: bool
    calls: list[tuple]
    dynamic: bool | None


def draw(seed: int, wrapped: bool) -> Drawn:
    """One program, with its calls."""
    rng = random.Random(seed)
    layers = [rng.choice(LAYERS) for _ in range(rng.randint(1, 5))]
    scaled, rate = rng.random() < 0.3, rng.choice(RATES)
    lines = [rng.choice(BEFORE) for _ in range(rng.randint(0, 3))]
    ends = [f"loss = {rng.choice(LOSSES)}"]
    ends.append("scaler.scale(loss).backward()" if scaled else "loss.backward()")
    body = [rng.choice(ZEROED), *([rate] if rng.random() < 0.15 else []), *lines]
    if wrapped and rng.random() < 0.3:
        body += ["with model.no_sync():", "    out = model(x * 0.5)", *(f"    {e}" for e in ends)]
    body += ["out = model(x)", *ends]
    if rng.random() < 0.5:
        body += ["scaler.unscale_(opt)"] * scaled + [rng.choice(AFTER)]
    body += ["scaler.step(opt)", "scaler.update()"] if scaled else ["opt.step()"]
    body.append(rng.choice(["return loss", "return loss.detach(), s", "return out.detach(), n"]))
    text = "\n    ".join(["def step(model, opt, scaler, state, x, y, lr, s, n):", *body])
    rates, scales = [0.1, 0.05, 0.025], [0.5, 0.75, 1.5, rng.random() + 0.1]
    calls = [
        (
            [rng.choice(LENGTHS) for _ in range(2)],
            rng.choice(rates),
            rng.choice(scales),
            rng.choice([1, 2, 3, 5, 7]),
            rng.randrange(12),
        )
        for _ in range(rng.randint(4, 9))
    ]
    joined = wrapped and rng.random() < 0.2
    dynamic = rng.choice([None, None, True])
    return Drawn(text, layers, rng.choice(OPTIMIZERS), wrapped, scaled, joined, calls, dynamic)


def change(what: int, net: Any, state: dict, opt: Any) -> None:
    """A legal change of the program's state between two calls."""
    steered = [m for m in net.modules() if isinstance(m, Steered)]
    if what == 0:
        state["gain"] = 2.0 if state["gain"] == 1.0 else 1.0
    elif what == 1:
        net.train(not net.training)
    elif what == 2:
        for m in steered:
            m.power = 0.5 if m.power == 1.0 else 1.0
    elif what == 3:
        for m in steered:
            m.extra = 0.25 if m.extra is None else None
    elif what == 4:
        state.update({f"other{len(state)}": 1})
    elif what == 5:
        for m in steered:
            m.seen = dt.zeros(())
    elif what == 6:
        opt.zero_grad()
    elif what == 7:
        opt.param_groups[0]["lr"] *= 0.5


def ran(drawn: Drawn, seed: int, compiled: bool) -> tuple[list, str]:
    """What calls give and leave behind; what the compiled step says of itself."""
    space: dict[str, Any] = {}
    around = {
        **globals(),
        "__name__": "drawn",
        "math": math,
        "tabled": functools.lru_cache(_tabled),
    }
    exec(compile(drawn.source, f"<step {seed}>", "exec"), around, space)
    step = space["step"]
    run = dt.compile(step, dynamic=drawn.dynamic) if compiled else step
    dt.manual_seed(seed)
    net = nn.Sequential(*(eval(text) for text in drawn.layers), nn.Linear(WIDTH, CLASSES))
    model = dist.DistributedDataParallel(net, bucket_cap_mb=0.0003) if drawn.wrapped else net
    opt = eval(drawn.optimizer, {"optim": optim, "ps": list(net.parameters())})
    scaler = dt.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2, enabled=drawn.scaled)
    state: dict[str, Any] = {"gain": 1.0}
    rank = dist.get_rank() if drawn.wrapped else 0
    gen = dt.Generator().manual_seed(seed + rank)
    found: list[Any] = []
    calls = drawn.calls[rank:] if drawn.joined else drawn.calls

    def train() -> None:
        for lengths, lr, s, n, what in calls:
            change(what, net, state, opt)
            x = dt.randn(lengths[rank], WIDTH, generator=gen)
            y = dt.randint(0, CLASSES, (lengths[rank],), generator=gen)
            found.append(_shown(run(model, opt, scaler, state, x, y, lr, s, n)))
            found.append([_shown(p.grad) for p in net.parameters()])
            found.append([(k, type(v), v) for k, v in state.items()])

    try:
        if drawn.joined:
            with model.join():
                train()
        else:
            train()
    except (RuntimeError, ValueError, ArithmeticError, TypeError) as error:
        found.append((type(error).__name__, str(error)))
    found.append([_shown(t) for t in model.state_dict().values()])
    kept = opt.state_dict()["state"].values()
    found.append([_shown(v) for values in kept for v in values.values()])
    found.append((_shown(dt.rand(2)), scaler.get_scale()))
    return found, run.explain() if compiled else ""


def _shown(value: Any) -> Any:
    if isinstance(value, dt.Tensor):
        array = value.detach().numpy()
        return array.shape, array.dtype, array.tobytes(), value.requires_grad
    if isinstance(value, (tuple, list)):
        return type(value), [_shown(v) for v in value]
    return type(value), repr(value)


def captured(told: str) -> int:
    """How many captures an explanation counts."""
    return int(re.search(r"(\d+) captured", told)[1])  # type: ignore[index]
