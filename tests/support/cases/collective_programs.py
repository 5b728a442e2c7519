"""Drawn programs of collectives among work of one's own: dependencies, aliases, writes in place,
handles that are waited for late or never, small sums in a row, two groups, backward in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn

WIDE, CALLS = 128, 7
# {v}: a new name; {a}, {b}: of matrices of WIDE rows and columns; {g}: a group; {h}: a number.
WORK = [
    "{v} = {a} @ {b}", "{v} = {a} * 0.5 + {b}", "{v} = {a}.relu()", "{v} = {a}.T",
    "{v} = {a} - z.sum()",
    "{v} = {a}.contiguous().view(-1).view(W, W)", "{v} = {a}.reshape(-1)[: W * W].reshape(W, W)",
    "{v} = {a}.tanh() @ w",
    "{v} = dt.cat([{a}[:64], {b}[64:]])", "{v} = {a}.clone()", "{v} = {a}.softmax(-1)",
    "{v} = {a}.detach()",
    "{a}.mul_(0.5)", "{a}[0] = {b}[1]", "{a}[:, 3].add_(1)", "{v} = {a}; {v}.add_(0.25)",
    "{a}.copy_({b} * 0.5)",
    "{v} = {a}.contiguous()", "{v} = {a} / {a}.abs().max().clamp(min=1)",
    "{v} = (z @ z.T).sum() * 1e-3 + {a}",
    "{v} = {a}[1:].sum(0, keepdim=True) * 1e-2 + {b}", "{v} = dt.stack([{a}, {b}]).mean(0)",
    "{v} = {a}.to(dt.float64).to(dt.float32)", "held.mul_(0.9).add_({a} * 0.1)", "{v} = held + {a}",
    "{v} = {a}.split(64)[0].repeat(2, 1)", "{v} = {a} + model({b}).detach()",
    "{v} = dt.zeros(W, W)",
    "{v} = dt.rand(W, W) * {a}", "{v} = F.dropout({a}, 0.5)",
    "loss = model({a}.detach()).square().mean(); loss.backward(); {v} = {a} + loss.detach()",
]  # fmt: skip
TOGETHER = [
    "dist.all_reduce({a}{g})", "dist.all_reduce({a}, dist.ReduceOp.MAX{g})",
    "dist.all_reduce({a}, dist.ReduceOp.AVG{g})",
    "{v} = {a} * 2; h{h} = dist.all_reduce({v}, async_op=True{g})", "dist.broadcast({a}, 1{g})",
    "dist.all_reduce({a}[0]{g})",
    "{v} = dt.empty(N * W, W); dist.all_gather_into_tensor({v}, {a}{g}); {v} = {v}[-W:]",
    "{v} = dt.empty(N * W, W); dist.all_gather_into_tensor({v}, {a}{g}); {a}.mul_(2); {v} = "
    "{v}[:W] + 1",
    "parts = [dt.empty(W, W) for _ in range(N)]; dist.all_gather(parts, {a}{g}); {v} = parts[0] "
    "- parts[-1]",
    "{v} = dt.empty(W, W); dist.reduce_scatter_tensor({v}, dt.cat([{a}] * N){g})",
    "{v} = dt.zeros(W, W); dist.all_to_all_single({v}, {a}{g}) if W % N == 0 else None",
    "{v} = {a}.contiguous().view(-1); dist.all_reduce({v}{g}); {v} = {v}.view(W, W)",
    "dist.barrier({g1})",
    "dist.reduce({a}, 0{g})", "dist.all_reduce(held{g})",
    "dist.all_reduce({a}[:64]{g}); dist.all_reduce({a}[64:]{g})",
    "for p in model.parameters():\n        if p.grad is not None: dist.all_reduce(p.grad{g})",
    "p = {a}.T; dist.all_reduce(p{g}) if p.is_contiguous() else None",
    "t{h} = {a}.sum(0); u{h} = {b}.sum(1); dist.all_reduce(t{h}{g}); dist.all_reduce(u{h}{g}); "
    "{v} = {a} * 0.5 + t{h} * 1e-2 - u{h} * 1e-2",
    "t{h} = {a}[0] * 1; u{h} = {b}[1] * 1; dist.all_reduce(t{h}{g}); t{h}.mul_(0.5); "
    "dist.all_reduce(u{h}{g}); u{h}.add_(t{h}); {v} = {a} + u{h}",
    "m{h} = [{a}[i] * i for i in range(4)]; [dist.all_reduce(q{g}) for q in m{h}]; {v} = {a} * "
    "0.1 + sum(m{h}) * 1e-2",
    "m{h} = [{a}[i].clone() for i in range(3)]; [dist.all_reduce(q, dist.ReduceOp.MAX{g}) for q "
    "in (m{h}[0], m{h}[1], m{h}[0], m{h}[2])]; {v} = {a} + m{h}[0] + m{h}[2]",
    "t{h} = dt.zeros(2, W); dist.all_reduce(t{h}[0]{g}); t{h}[1] = 2; "
    "dist.all_reduce(t{h}[1]{g}); {v} = {a} + t{h}.sum(0)",
    "t{h} = {a}.sum(); dist.all_reduce(t{h}{g}); u{h} = {b}.amax(); dist.all_reduce(u{h}{g}); "
    "{v} = {a} + t{h} * 1e-4 + u{h}",
    "{v} = fc.all_reduce({a}, 'sum', list(range(N)))",
    "{v} = fc.all_gather_tensor({a}, 0, list(range(N)))[:W]",
]  # fmt: skip
ENDS = ["return {a}, {b}", "return {a}.sum() + {b}.mean()", "return {a}[2:5], {b}.T, {a}",
        "return [{a}.reshape(-1)[::3]]"]  # fmt: skip
EAGER = ("async_op", "barrier", "fc.")  # of what is not captured


def source(seed: int) -> str:
    """``step(x, z)``: of a matrix and rows that other ranks do not see."""
    rng = random.Random(seed)
    lines, known = ["x = x * 1.0" if rng.random() < 0.8 else "x = x + w"], ["x", "w2"]
    lines.append("w2 = w * 2")
    begun: list[int] = []  # what is not waited for
    for i in range(rng.randint(4, 12)):
        form = rng.choice(WORK if rng.random() < 0.55 else TOGETHER)
        if seed % 4 and any(word in form for word in EAGER):
            form = TOGETHER[0]
        a, b, v = rng.choice(known[-4:]), rng.choice(known), f"v{i}"
        other = rng.random() < 0.25
        group = (", group=group", "group") if other else ("", "")
        lines.append(form.format(a=a, b=b, v=v, h=i, g=group[0], g1=group[1]))
        if "async_op" in form:
            begun.append(i)
        elif "{v}" in form:
            known.append(v)
        if begun and rng.random() < 0.4:
            k = begun.pop(rng.randrange(len(begun)))
            lines.append(f"h{k}.wait()")
            known.append(f"v{k}")
    lines.append(rng.choice(ENDS).format(a=known[-1], b=rng.choice(known)))
    return "def step(x, z):\n" + "".join(f"    {line}\n" for line in lines)


class World:
    """What one rank has."""

    def __init__(self, seed: int, compiled: bool, group: Any) -> None:
        dt.manual_seed(seed)
        self.model = nn.Linear(WIDE, WIDE)
        self.held = dt.ones(WIDE, WIDE)
        self.space = {
            "dt": dt, "dist": dist, "F": nn.functional, "fc": dist._functional_collectives,
            "W": WIDE, "N": dist.get_world_size(), "group": group, "held": self.held,
            "model": self.model, "w": dt.randn(WIDE, WIDE) * 0.05,
        }  # fmt: skip
        exec(source(seed), self.space)  # noqa: S102
        self.plain: Callable[..., Any] = self.space["step"]
        self.step = dt.compile(self.plain) if compiled else self.plain


def ran(seed: int, compiled: bool, group: Any, aside: bool) -> tuple[list, str]:
    """The bits of calls. ``aside``: each rank runs some of them eagerly, or captures anew."""
    world, rank = World(seed, compiled, group), dist.get_rank()
    rng, own, found = random.Random(seed), random.Random(seed * 8 + rank), list[Any]()
    for i in range(CALLS):
        of = np.random.default_rng((seed, i, rank))
        x = dt.tensor(of.standard_normal((WIDE, WIDE)).astype(np.float32))
        rows = own.choice([3, 5]) if aside and i > 2 else 3
        z = dt.tensor(of.standard_normal((rows, 4)).astype(np.float32))
        call = world.plain if aside and i > 2 and own.random() < 0.3 else world.step
        got = call(x, z)
        leaves = [got] if isinstance(got, dt.Tensor) else list(got)
        leaves += [world.held, *(p.grad for p in world.model.parameters() if p.grad is not None)]
        found.append([t.detach().numpy().tobytes() for t in leaves] + [t.stride() for t in leaves])
        if rng.random() < 0.5:
            world.model.zero_grad()
    return found, world.step.explain() if compiled else ""


def difference(seed: int, aside: bool) -> tuple[str | None, str]:
    """Where the compiled program and the eager one part on this rank, if they do; what it tells."""
    group = dist.new_group(list(range(dist.get_world_size())))
    plain, _ = ran(seed, False, group, aside)
    other, told = ran(seed, True, group, aside)
    for i, (a, b) in enumerate(zip(plain, other, strict=True)):
        if a != b:
            return f"{source(seed)}rank {dist.get_rank()}, call {i}\n{told:.900}", told
    return None, told
