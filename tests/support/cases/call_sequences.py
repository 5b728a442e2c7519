"""Drawn sequences of calls of one function, between which all changes that a program may change.

A ``World`` has a model, what surrounds it, and one of the functions of ``BODIES``; ``sequence``
draws actions on it: calls in modes, with other arguments, inside of transforms, and changes.
Two worlds of one seed, of which one compiles the function, must stay alike bit for bit.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import random
import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import nn
from disttrain.autograd import Function
from disttrain.core.backward.checkpoint import checkpoint
from support.agree import frozen

Pair = namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Settings:
    """What a function is told by an object."""

    scale: float = 1.5
    twice: bool = False


class Cube(Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any, by: float) -> Any:
        ctx.save_for_backward(x)
        ctx.by = by
        return x * x * x * by

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x * ctx.by, None


class Net(nn.Module):
    """A little of everything that a mode, a type or a replaced part changes."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 4)
        self.drop = nn.Dropout(0.25)
        self.register_buffer("count", dt.zeros(1))

    def forward(self, x: Any) -> Any:
        if self.training:
            self.count += 1
        return self.two(self.drop(F.gelu(self.norm(self.one(x)))))


class World:
    """``compiled``: whether ``call`` is."""

    def __init__(self, seed: int, name: str, compiled: bool) -> None:
        dt.manual_seed(seed)
        self.net, self.settings, self.log = Net(), Settings(), []
        self.optimizer = dt.optim.AdamW(self.net.parameters(), lr=0.01)
        self.schedule = dt.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)
        self.state, self.factor, self.limit = dt.ones(4), {"now": 2.0}, 3.0
        body = BODIES[name]
        self.body = lambda x, *args, **kwargs: body(self, x, *args, **kwargs)
        self.call = dt.compile(self.body) if compiled else self.body
        self.threads: list[Any] = []

    def look(self) -> list:
        """All numbers that can be seen."""
        found = [*self.net.parameters(), *self.net.buffers(), self.state]
        return [frozen(found), frozen(dt.default_generator.get_state())]


# --- functions ------------------------------------------------------------------------------------
def _forward(w: World, x: Any) -> Any:
    return w.net(x) * w.factor["now"]


def _train(w: World, x: Any) -> Any:
    w.optimizer.zero_grad()
    loss = w.net(x).square().mean() * w.settings.scale
    if loss.requires_grad:
        loss.backward()
        w.optimizer.step()
    return loss.detach()


def _alias(w: World, x: Any) -> Any:
    y = x.clone()
    rows = y[1:]
    rows.mul_(2).add_(w.state)
    y.detach()[0].fill_(w.settings.scale)
    with dt.no_grad():
        w.state.add_(y.detach().mean(0).to(w.state.dtype))
    return y, y.T


def _argument(w: World, x: Any) -> Any:
    with dt.no_grad():
        x.data[0] += 1
        x.detach()[:, ::2].mul_(0.5)
    return {"rows": x.sum(1), "pair": Pair(x * 2, len(x))}


def _function(w: World, x: Any) -> Any:
    y = Cube.apply(x, w.settings.scale)
    return [y.sum(), Pair(y, None)]


def _decides(w: World, x: Any) -> Any:
    if float(x.abs().sum()) > w.limit * len(x):
        return x * 2
    return x - 1 if w.settings.twice else (x + 1).relu()


def _parts(w: World, x: Any) -> Any:
    def pieces() -> Any:
        yield from x.chunk(2)

    try:
        found = [p.sum() for p in pieces() if p.numel() > 4]
        if not found:
            raise ValueError("few")
    except ValueError:
        found = [x.sum() * 3]
    return dt.stack(found)


def _hooked(w: World, x: Any) -> Any:
    y = x * w.factor["now"]
    if y.requires_grad:
        y.register_hook(lambda g: g * 2)
    return (y * y).sum()


def _checkpointed(w: World, x: Any) -> Any:
    return checkpoint(lambda t: w.net.two(F.dropout(w.net.one(t).tanh(), 0.3)), x,
                      use_reentrant=False)  # fmt: skip


def _inner(w: World, x: Any) -> Any:
    return dt.compile(lambda t: t.softmax(-1) * w.factor["now"])(x) + w.state.to(x.dtype)


def _draws(w: World, x: Any) -> Any:
    noise = dt.randn_like(x) * w.settings.scale
    return F.dropout(x, 0.5) + noise + dt.rand(len(x), 1)


def _gradient(w: World, x: Any) -> Any:
    return dt.func.grad(lambda t: (t * t * w.settings.scale).sum())(x.detach()) + x


def _mapped(w: World, x: Any) -> Any:
    return dt.func.vmap(lambda row: (row * w.state.to(row.dtype)).cumsum(0) * w.limit)(x)


BODIES: dict[str, Callable[..., Any]] = {
    f.__name__[1:]: f
    for f in (
        _forward, _train, _alias, _argument, _function, _decides, _parts, _hooked, _checkpointed,
        _inner, _draws, _gradient, _mapped,
    )
}  # fmt: skip


# --- arguments, modes, changes --------------------------------------------------------------------
def _given(rng: random.Random) -> Callable[[], Any]:
    """What makes an argument: of few rows, of several types, laid out in several ways."""
    rows, kind = rng.choice([2, 3, 4, 8, 16]), rng.choice(["plain"] * 4 + list(_LAYOUTS))
    leaf, seed = rng.random() < 0.4, rng.randrange(1 << 20)

    def make() -> Any:
        source = dt.Generator().manual_seed(seed)
        x = _LAYOUTS[kind](dt.randn(rows, 8, generator=source))
        return x.requires_grad_() if leaf else x

    return make


_LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: x[:, :4].clone(),
    "view": lambda x: x[:, 2:6],
    "strided": lambda x: x[:, ::2],
    "turned": lambda x: x[:, :4].T.contiguous().T,
    "double": lambda x: x[:, :4].double(),
    "repeated": lambda x: x[:1, :4].expand(len(x), 4).clone(),
}
_MODES: dict[str, Callable[[], Any]] = {
    "plain": contextlib.nullcontext,
    "no_grad": dt.no_grad,
    "inference": dt.inference_mode,
    "autocast": lambda: dt.autocast("cpu", dtype=dt.bfloat16),
    "enabled": dt.enable_grad,
}


def _set_scale(w: World, rng: random.Random) -> None:
    w.settings.scale = rng.choice([0.5, 1.0, 1.5, 2.5])


def _flip(w: World, rng: random.Random) -> None:
    w.settings.twice = not w.settings.twice


def _refactor(w: World, rng: random.Random) -> None:
    w.factor["now"] = rng.choice([1.0, 2.0, -3.0])


def _mode(w: World, rng: random.Random) -> None:
    w.net.train(rng.random() < 0.5)


def _freeze(w: World, rng: random.Random) -> None:
    p = rng.choice([*w.net.parameters()])
    p.requires_grad_(not p.requires_grad)


def _replace(w: World, rng: random.Random) -> None:
    w.net.two.weight = nn.Parameter(w.net.two.weight.detach() * 2)
    w.optimizer = dt.optim.AdamW(w.net.parameters(), lr=0.01)
    w.schedule = dt.optim.lr_scheduler.StepLR(w.optimizer, 3, 0.5)


def _reload(w: World, rng: random.Random) -> None:
    w.net.load_state_dict({k: v * 0.5 for k, v in copy.deepcopy(w.net.state_dict()).items()
                           if v.dtype.is_floating_point}, strict=False)  # fmt: skip


def _rebind(w: World, rng: random.Random) -> None:
    w.state = w.state * 0.5


def _advance(w: World, rng: random.Random) -> None:
    w.schedule.step()


def _hook(w: World, rng: random.Random) -> None:
    if w.threads:
        w.threads.pop().remove()
    else:
        w.threads.append(w.net.one.register_forward_hook(lambda m, args, out: out * 2))


def _clear(w: World, rng: random.Random) -> None:
    w.net.zero_grad(set_to_none=rng.random() < 0.5)


def _swap(w: World, rng: random.Random) -> None:
    w.net.drop = nn.Dropout(rng.choice([0.0, 0.25, 0.5]))


CHANGES = (
    _set_scale, _flip, _refactor, _mode, _freeze, _replace, _reload, _rebind, _advance, _hook,
    _clear, _swap,
)  # fmt: skip
Action = Callable[[World], Any]


def _calling(rng: random.Random) -> Action:
    given, backward = _given(rng), rng.random() < 0.6
    mode = rng.choice(["plain"] * 4 + [*_MODES])
    again, inside = rng.choice([1, 1, 2, 3]), rng.choice([None] * 5 + ["thread", "grad"])

    def act(w: World) -> Any:
        seen = []
        for _ in range(again):
            x = given()
            with _MODES[mode]():
                result = _inside(w, inside, x)
            if backward:
                tensors = [t for t in dt.tree.leaves(result) if isinstance(t, dt.Tensor)]
                for t in [t for t in tensors if t.requires_grad][:1]:
                    t.float().sum().backward()
            seen.append(frozen([result, x]))
        return seen

    act.__name__ = f"call({given().shape}, {mode}, {inside}, {again})"
    return act


def _inside(w: World, how: str | None, x: Any) -> Any:
    """The function's result, on a thread of its own, or within a transform."""
    if how == "grad" and not x.requires_grad:
        return dt.func.vjp(lambda t: _floats(w.call(t)), x)[0]
    if how != "thread":
        return w.call(x)
    found, raised = list[Any](), list[Exception]()
    recording, inference = dt.is_grad_enabled(), dt.is_inference_mode_enabled()

    def work() -> None:
        with dt.inference_mode(inference), dt.set_grad_enabled(recording):
            try:
                found.append(w.call(x))
            except Exception as error:
                raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


def _floats(result: Any) -> Any:
    return next(t for t in dt.tree.leaves(result) if isinstance(t, dt.Tensor))


def sequence(seed: int, length: int) -> tuple[str, list[Action]]:
    """The name of a function, and actions."""
    rng = random.Random(seed)  # noqa: S311
    actions: list[Action] = []
    while len(actions) < length:
        if rng.random() < 0.65:
            actions.append(_calling(rng))
        else:
            change, inner = rng.choice(CHANGES), rng.randrange(1 << 20)
            act = _changing(change, inner)
            actions.append(act)
    return rng.choice([*BODIES]), actions


def _changing(change: Callable[[World, random.Random], None], seed: int) -> Action:
    def act(w: World) -> None:
        change(w, random.Random(seed))  # noqa: S311

    act.__name__ = change.__name__[1:]
    return act


def tried(world: World, act: Action) -> Any:
    """What an action gives, or raises."""
    try:
        return act(world)
    except Exception as error:  # of the same kind in the other world
        return type(error).__name__


def difference(seed: int, length: int) -> str | None:
    """Where the two worlds part, if they do."""
    name, actions = sequence(seed, length)
    worlds = []
    for compiled in (False, True):
        world, seen = World(seed, name, compiled), []
        for act in actions:
            seen.append((tried(world, act), world.look()))
        worlds.append((world, seen))
    (_, expected), (world, found) = worlds
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a != b:
            done = ", ".join(act.__name__ for act in actions[: i + 1])
            return f"{name}: {done}\neager {a}\ncompiled {b}\n{world.call.explain()}"
    return None
