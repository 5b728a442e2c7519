"""Random step functions as text: each is made of pieces, which can be left out one by one.

A piece is (lines that set state up, lines of the step, lines that change state between calls).
``text(pieces, ending, n)`` is a module with ``make()``, which gives (step, between, look) as
``support.agree`` wants them; names in it end in the number of their piece, so that any subset of
pieces is a program too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

HEAD = """
import math
import random
import numpy as np
import disttrain as dt
from disttrain import nn
F = nn.functional
G = {{}}

class Box:
    def __init__(self, **values): self.__dict__.update(values)
    def apply(self, h): return h * self.value
    @property
    def twice(self): return self.value * 2

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.register_buffer("seen", dt.zeros(3))
        self.factor, self.calls = 1.0, 0
    def forward(self, h):
        with dt.no_grad():
            self.seen.mul_(0.5).add_(h.detach().mean(0))
        return self.inner(h) * self.factor - self.seen

def make():
    random.seed({seed}); np.random.seed({seed})
    gen = dt.Generator().manual_seed({seed})
    leaves, state = [], []
    def leaf(*shape):
        t = (dt.randn(*shape, generator=gen) * 0.5).requires_grad_()
        leaves.append(t)
        return t
    base = leaf(3)
"""

Piece = tuple[list[str], list[str], list[str]]


def _number(r: random.Random) -> str:
    return r.choice(["0.5", "-0.25", "1.5", "2", "0.1", "-1.0"])


def arithmetic(i: int, r: random.Random) -> Piece:
    line = r.choice(
        [
            "h.tanh()", "h * {n} + 1", "h - h.mean(0)", "h.softmax(1)", "F.gelu(h)", "h.exp() / 2",
            "h.relu() + 0.1", "F.layer_norm(h, (3,))", "h.abs().sqrt()", "(h * h).cumsum(0)",
            "dt.cat([h, h * {n}])[: h.shape[0]]", "h.sort(0)[0]", "h.clamp(-1, 1)", "h.flip(0)",
            "h.t().contiguous().t()", "h.sigmoid()", "h.max(1, keepdim=True)[0] - h", "h.square()",
            "dt.stack([h, h.sin()]).mean(0)", "h / (h.norm() + 1)", "h.logsumexp(1, True) - h",
        ]
    )  # fmt: skip
    return [], [f"h = {line.format(n=_number(r))}"], []


def masks(i: int, r: random.Random) -> Piece:
    line = r.choice(
        [
            "h = dt.where(h > {n}, h, -h)", "h = h.masked_fill(h > {n}, 0.3)",
            "h = h + h[h > {n}].sum()", "h = h.clone(); h[h > {n}] = 0.5",
            "h = h * (h > {n})", "h = h + h.masked_select(h < {n}).sum() * 0.1",
            "h = h + (h > {n}).nonzero().float().sum() * 0.01",
            "h = h + F.one_hot((h.abs() * 2).long() % 3, 3).float().mean(1)",
            "h = h[(h[:, 0] * 0).long()] + h", "h = h.gather(1, (h.abs() * 5).long() % 3)",
            "h = h + dt.bucketize(h.detach(), dt.tensor([-0.5, 0.5])).float()",
            "h = h + len((h * 2).long().unique())",
            "h = h.repeat_interleave(dt.tensor([1] * h.shape[0]), 0)",
        ]
    )  # fmt: skip
    return [], [line.format(n=_number(r))], []


def decisions(i: int, r: random.Random) -> Piece:
    line = r.choice(
        [
            "h = h * 2 if h.sum() > 0 else h", "h = h * float(h.detach().mean())",
            "h = h * (1 + h.argmax().item() % 2)", "h = h / max(1.0, h.abs().max().item())",
        ]
    )  # fmt: skip
    return [], [line], []


def closures(i: int, r: random.Random) -> Piece:
    setup = [f"c{i} = {_number(r)}"]
    if r.random() < 0.5:
        setup += [f"def f{i}(h): return h * c{i}"]
        return setup, [f"h = f{i}(h)"], [f"nonlocal c{i}; c{i} = 1.0 / (i + 1)"]
    return setup, [f"h = h + c{i}"], [f"nonlocal c{i}; c{i} = i % 3"]


def containers(i: int, r: random.Random) -> Piece:
    return r.choice(
        [
            ([f"d{i} = {{'a': [1.0, 2.0]}}"], [f"h = h * d{i}['a'][0]"],
             [f"d{i}['a'][0] = 1.0 / (i + 1)"]),
            ([f"d{i} = {{'w': leaf(3)}}"], [f"h = h * d{i}['w']"],
             [f"d{i}['w'] = d{i}['w'].detach().clone().requires_grad_()",
              f"leaves.append(d{i}['w'])"]),
            ([f"d{i} = [dt.ones(3)]"], [f"h = sum(d{i}, h)"],
             [f"d{i}.append(dt.full((3,), 0.1 * i)) if i < 3 else d{i}.clear()"]),
            ([f"d{i} = {{}}"], [f"h = h + len(d{i}) + sum(d{i}.values())"], [f"d{i}[i % 4] = i"]),
            ([f"d{i} = (1.0, [2.0])"], [f"h = h * d{i}[1][0]"], [f"d{i}[1][0] = i * 0.5"]),
            ([f"d{i} = {{1, 2}}"], [f"h = h * len(d{i})"],
             [f"d{i}.symmetric_difference_update({{i}})"]),
            ([f"d{i} = {{'on': True}}"], [f"h = h.sin() if d{i}['on'] else h.cos()"],
             [f"d{i}['on'] = i % 2 == 0"]),
        ]
    )  # fmt: skip


def objects(i: int, r: random.Random) -> Piece:
    return r.choice(
        [
            ([f"o{i} = Box(value=1.0)"], [f"h = o{i}.apply(h)"], [f"o{i}.value = i * 0.5"]),
            ([f"o{i} = Box(value=dt.ones(3))"], [f"h = o{i}.apply(h)"],
             [f"o{i}.value = dt.full((3,), i * 0.5)"]),
            ([f"o{i} = Box(value=dt.ones(3))"], [f"h = h * o{i}.twice"], [f"o{i}.value.mul_(0.5)"]),
            ([f"o{i} = Box(box=Box(box=Box(value=1.0)))"], [f"h = h * o{i}.box.box.twice"],
             [f"o{i}.box.box = Box(value=i * 0.1)"]),
            ([f"o{i} = Box(value=dt.ones(3))"], [f"h = o{i}.apply(h)"],
             [f"o{i}.value.data = dt.full((3,), i * 0.5)"]),
            ([f"o{i} = Box(f=lambda h: h.sin())"], [f"h = o{i}.f(h)"],
             [f"o{i}.f = (lambda h: h.cos()) if i % 2 else (lambda h, k=i: h * k)"]),
            ([f"G['g{i}'] = 1.0"], [f"h = h * G['g{i}']"], [f"G['g{i}'] = 0.2 * i"]),
            ([f"n{i} = np.ones(3, np.float32)"], [f"h = h * dt.from_numpy(n{i})"],
             [f"n{i}[:] = i"]),
            ([f"n{i} = np.ones(3, np.float32)"], [f"h = h * float(n{i}[1])"],
             [f"n{i}[1] = 0.5 * i"]),
            ([f"t{i} = dt.ones(1)"], [f"h = h * t{i}.item()"], [f"t{i}.fill_(0.5 * i)"]),
        ]
    )  # fmt: skip


def changes(i: int, r: random.Random) -> Piece:
    return r.choice(
        [
            ([f"b{i} = dt.zeros(3); state.append(b{i})"],
             [f"b{i}.mul_(0.5).add_(h.detach().mean(0))", f"h = h + b{i}"], []),
            ([f"b{i} = Box(value=dt.zeros(3)); state.append(b{i}.__dict__)"],
             [f"b{i}.value = b{i}.value * 0.5 + h.detach().mean(0)", f"h = h + b{i}.value"], []),
            ([f"k{i} = [0]; state.append(k{i})"], [f"k{i}[0] += 1", f"h = h * k{i}[0]"], []),
            ([f"k{i} = []; state.append(k{i})"], [f"k{i}.append(h.detach().sum())"], []),
            ([f"e{i} = dt.zeros(3); state.append(e{i})"],
             ["with dt.no_grad():", f"    e{i}.lerp_(h.mean(0), 0.1)"], []),
            ([f"q{i} = {{}}"],
             [f"if 'w' not in q{i}: q{i}['w'] = dt.full((3,), 2.0)", f"h = h * q{i}['w']"], []),
            ([f"b{i} = dt.zeros(2, 3); state.append(b{i})"],
             [f"b{i}[0].copy_(h.detach()[0])", f"b{i}.view(-1)[3:5].add_(1)",
              f"h = h + b{i}.sum(0)"], []),
        ]
    )  # fmt: skip


def leaves(i: int, r: random.Random) -> Piece:
    between = r.choice(
        [
            [], [f"w{i}.requires_grad_(i % 3 != 1)"], [f"w{i}.grad = None"],
            ["with dt.no_grad():", f"    w{i}.mul_(0.9)"],
            [f"if w{i}.grad is not None: w{i}.grad.zero_()"],
            [f"w{i}.register_hook(lambda g: g * 0.5) if i == 4 and w{i}.requires_grad else 0"],
        ]
    )  # fmt: skip
    use = r.choice(
        [f"h = h * w{i}", f"h = h + w{i}", f"h = h @ m{i} + w{i}", f"h = w{i} - h * w{i}"]
    )
    return [f"w{i} = leaf(3); m{i} = leaf(3, 3)"], [f"h = {use}"], between


def modules(i: int, r: random.Random) -> Piece:
    kind = r.choice(
        ["nn.Linear(3, 3)", "nn.BatchNorm1d(3)", "nn.LayerNorm(3)", "nn.Dropout(0.5)", "Block()",
         "nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 3))"]
    )  # fmt: skip
    between = r.choice(
        [
            [], [f"l{i}.train(i % 2 == 0)"], [f"l{i}.requires_grad_(i % 3 != 1)"],
            [f"l{i}.register_forward_hook(lambda m, a, out: out * 0.5) if i == 3 else None"],
            [f"l{i}.load_state_dict({{k: v * 0.5 for k, v in l{i}.state_dict().items()}})"],
            [f"l{i}.factor = 0.1 * i"], [f"l{i}.zero_grad(set_to_none=i % 2 == 0)"],
        ]
    )  # fmt: skip
    setup = [f"l{i} = {kind}", f"leaves += l{i}.parameters(); state.append(l{i}.state_dict())"]
    return setup, [f"h = l{i}(h)"], between


def draws(i: int, r: random.Random) -> Piece:
    return r.choice(
        [
            ([], ["h = F.dropout(h, 0.4)"], []),
            ([], ["h = h + dt.randn(3) * 0.1"], []),
            ([], ["h = h * dt.rand_like(h)"], []),
            ([], ["h = h[dt.randperm(h.shape[0])]"], []),
            ([], ["h = h * random.random()"], []),
            ([], ["h = h + float(np.random.rand())"], []),
            ([], ["h = F.dropout(h, 0.4)"], ["dt.manual_seed(i)"]),
            ([f"u{i} = dt.Generator().manual_seed(5)"],
             [f"h = h + dt.randn(3, generator=u{i})"], []),
        ]
    )  # fmt: skip


def views(i: int, r: random.Random) -> Piece:
    return r.choice(
        [
            ([], [f"v{i} = h * 1", f"v{i}[0] = {_number(r)}", f"h = v{i}"], []),
            ([], [f"v{i} = h * 1", f"v{i}.view(-1)[1:3].mul_(2)", f"h = v{i}"], []),
            ([], [f"v{i} = h * 1", f"v{i}[:, 1].copy_(h[:, 0])", f"h = v{i} + h"], []),
            ([], [f"v{i} = dt.zeros(3)", f"v{i} += h.sum(0)", f"h = h + v{i}"], []),
            ([], [f"v{i} = h.detach()", f"h = h * v{i}"], []),
            ([], ["with dt.no_grad():", f"    v{i} = h * 2", f"h = h + v{i}"], []),
            ([], [f"v{i} = h.t()", f"h = v{i}.t() + v{i}.sum()"], []),
            ([], [f"a{i}, b{i} = h.chunk(2) if h.shape[0] > 1 else (h, h)",
                  f"h = h + a{i}.sum(0) * b{i}.mean(0)"], []),
        ]
    )  # fmt: skip


def branches(i: int, r: random.Random) -> Piece:
    """Python looks at what the step computes: tests, loops, counts; after writes and draws too."""
    n = _number(r)
    return r.choice(
        [
            ([], [f"if h.sum() > {n}: h = h * 2"], []),
            ([], [f"if (h > {n}).any(): h = h + dt.randn(3)"], []),
            ([], ["while h.abs().max() > 1.5: h = h * 0.5"], []),
            ([], [f"h = h * (1 + int((h > {n}).sum()) % 3)"], []),
            ([], [f"if not (h.detach().mean() < {n}): h = F.dropout(h, 0.3)"], []),
            ([], ["h = h + 1 if x[0, 0] > 0 else h.tanh()"], []),
            ([], [f"h = h * sum(v for v in (h[:2, 0] > {n}).tolist())"], []),
            ([], [f"h = h + len([v for v in h.sum(0) if v > {n}])"], []),
            ([f"b{i} = dt.zeros(3); state.append(b{i})"],
             [f"b{i}.mul_(0.5).add_(h.detach().mean(0))", f"if b{i}.sum() > {n}: b{i}.zero_()",
              f"h = h + b{i}"], []),
            ([f"b{i} = dt.zeros(3); state.append(b{i})"],
             [f"b{i}.add_(h.detach().mean(0))", f"b{i}[1:].neg_()",
              f"h = h.relu() if b{i}[2] > {n} else h - b{i}"], []),
            ([f"l{i} = nn.BatchNorm1d(3)",
              f"leaves += l{i}.parameters(); state.append(l{i}.state_dict())"],
             [f"h = l{i}(h)", f"if h.max() > {n}: h = h - h.min()"], []),
            ([f"u{i} = dt.Generator().manual_seed(5)"],
             [f"if dt.rand(1, generator=u{i}) > 0.5: h = h + dt.randn(3, generator=u{i})"], []),
            ([], [f"h = h + (h.sum() > {n}).item()"], []),
            ([f"w{i} = leaf(3)"],
             [f"h = h * w{i}", f"if h.sum() > {n}: print(end='')"], [f"w{i}.grad = None"]),
            ([f"k{i} = [0]; state.append(k{i})"], [f"if h.sum() > {n}: k{i}[0] += 1"], []),
        ]
    )  # fmt: skip


KINDS: dict[Callable, float] = {
    arithmetic: 4, masks: 1, decisions: 0.25, closures: 1, containers: 1.5, objects: 2,
    changes: 1.2, leaves: 2, modules: 2, draws: 1, views: 1.5,
}  # fmt: skip

PATHS: dict[Callable, float] = {
    **KINDS, branches: 8, draws: 2, decisions: 0.5, masks: 0.2, containers: 0.5, objects: 0.5,
}  # fmt: skip
# Looks at the loss, between the parts of a step.
_LOOKS = [
    "if not dt.isfinite(loss): return None", "if loss > 0.5: return loss.detach()",
    "if loss.detach() > 0.2: leaves[0].grad = None", "if bool((loss < 0.3) & (loss > 0.1)): pass",
    "logs = {}; logs['loss'] = loss.item(); logs['n'] = 2; return logs",
    "logs = []; logs.append(float(loss)); h = h + len(logs); return logs",
    "logs = []; logs.append(loss.item()); loss = loss + (1 if logs[0] > 0.4 else 0)",
    "if loss.item() > 0.5: return loss.item()", "if not math.isfinite(loss.item()): return None",
    "low = loss.item(); loss = loss * 2 if low > 0.4 else loss", "if float(loss) < scale: pass",
    "low = [loss.item()]; low.append(float(loss)); return low", "low = float(loss) * 0",
    "low = loss.item(); loss = loss + 1.0 if low > 0.7 or low <= 0.1 else loss; return low, [low]",
    "for v in (0.3, 0.6):\n            if loss.item() < v: return {'v': v, 'loss': loss.item()}",
]  # fmt: skip
_NUMBERS = [
    "loss.item()", "(loss.item(), h.detach())", "{'loss': float(loss), 'n': 3}", "h.sum().item()",
    "[h.detach(), float(h.detach().max())]",
    "[float(loss), [loss.item(), h.detach()[0]], h.argmax().item()]",
]  # fmt: skip
_ZERO = ["opt.zero_grad()", "opt.zero_grad(set_to_none=False)"]
_BACK = ["loss.backward()", "(loss * 2).backward()", "loss.backward(); h.sum().backward()"]


def ending(r: random.Random) -> dict[str, Any]:
    """How the step ends: what it trains, how, and what it gives."""
    kind = r.choice(["value", "value", "train", "train", "train", "accumulate", "grads", "by hand"])
    make = r.choice(
        ["dt.optim.SGD(leaves, lr=0.1)", "dt.optim.SGD(leaves, lr=0.1, momentum=0.9)",
         "dt.optim.AdamW(leaves, lr=0.01)", "dt.optim.RMSprop(leaves, lr=0.01)",
         "dt.optim.Adam([{'params': leaves[:1], 'lr': 0.1}, {'params': leaves[1:]}], lr=0.01)"]
    )  # fmt: skip
    if make.startswith("dt.optim.Adam(["):
        make += " if len(leaves) > 1 else dt.optim.Adam(leaves)"
    setup, lines, between = [f"opt = {make}"], ["loss = (h * base).square().mean()"], []
    if kind == "value":
        results = [
            "h * base", "h.detach()", "(h * base, h.sum())", "{'a': h * base, 'b': h.argmax()}",
            "[h * base, h.sum() * 2]", "h[0]", "loss",
        ]  # fmt: skip
    elif kind == "train":
        zero, back = r.choice(_ZERO), r.choice(_BACK[:2])
        clip = ["nn.utils.clip_grad_norm_(leaves, 0.5)"] if r.random() < 0.3 else []
        order = [[zero, back, *clip, "opt.step()"], [back, *clip, "opt.step()", zero]]
        lines += r.choice(order)
        results = [
            "loss.detach()",
            "loss",
            "(loss.detach(), h.detach())",
            "None",
            "loss.detach() * 2",
        ]
        between = r.choice(
            [[], ["opt.param_groups[0]['lr'] = 0.1 / (i + 1)"], ["sched.step()"],
             ["opt.load_state_dict(opt.state_dict())"],
             ["opt.param_groups[0]['weight_decay'] = 0.1 * i"]]
        )  # fmt: skip
        if between == ["sched.step()"]:
            setup += ["sched = dt.optim.lr_scheduler.StepLR(opt, 2, 0.5)"]
    elif kind == "accumulate":
        lines += [r.choice(_BACK[:2])]
        between = r.choice([[], ["if i % 3 == 2: opt.step(); opt.zero_grad()"], [_ZERO[1]]])
        results = ["loss.detach()", "h.detach()", "None", "base.grad * 2"]
    elif kind == "grads":
        lines += ["gs = dt.autograd.grad(loss, [base])"]
        results = ["gs[0]", "(loss.detach(), *gs)"]
    else:
        lines += ["loss.backward()", "with dt.no_grad():", "    for p in leaves:",
                  "        if p.grad is not None: p.sub_(p.grad * 0.1); p.grad = None"]  # fmt: skip
        results = ["loss.detach()", "None"]
    return {"setup": setup, "lines": lines, "between": between, "result": r.choice(results)}


def _sometimes(piece: Piece, r: random.Random) -> Piece:
    """The piece with its change made before every call, or before two of them only."""
    setup, step, between = piece
    if not between or r.random() < 0.35:
        return piece
    named = [b.partition(";")[0] + ";" for b in between if b.startswith("nonlocal")]
    done = [b.partition(";")[2].strip() if b.startswith("nonlocal") else b for b in between]
    when = f"if i in ({r.randint(2, 5)}, {r.randint(6, 9)}):"
    return setup, step, [*named, when, *("    " + b for b in done)]


def draw(seed: int, weights: dict[Callable, float] = KINDS) -> tuple[list[Piece], dict[str, Any]]:
    """The pieces and the end of one random step function. ``weights``: ``KINDS``, or ``PATHS`` for
    functions that look at what they compute."""
    r = random.Random(seed)
    count = r.randint(1, 6)
    kinds = r.choices(list(weights), list(weights.values()), k=count)
    pieces = [_sometimes(kind(i, r), r) for i, kind in enumerate(kinds)]
    end = ending(r)
    if weights is PATHS:
        whole = [k for k, line in enumerate(end["lines"]) if k and not line.startswith(" ")]
        end["lines"].insert(r.choice([*whole, len(end["lines"])]), r.choice(_LOOKS))
        if end["result"] != "gs[0]" and r.random() < 0.5:
            end["result"] = r.choice(_NUMBERS)
    end["inputs"] = r.choice(["plain", "plain", "shapes", "requires", "no_grad", "scale", "again"])
    end["seed"] = seed
    return pieces, end


def text(pieces: list[Piece], end: dict[str, Any]) -> str:
    """The program."""
    lines = [HEAD.format(seed=end["seed"])]

    def put(indent: int, parts: list[str]) -> None:
        lines.extend("    " * indent + part for part in parts)

    for setup, _, _ in pieces:
        put(1, setup)
    put(1, end["setup"])
    put(1, ["def step(x, scale=1.0):", "    h = x * scale"])
    for _, step, _ in pieces:
        put(2, step)
    put(2, [*end["lines"], f"return {end['result']}"])
    put(1, ["def change(i):", "    pass"])
    for _, _, between in pieces:
        names = [b.partition(";")[0] for b in between if b.startswith("nonlocal")]
        put(2, names)
    for _, _, between in pieces:
        put(2, [b.partition(";")[2].strip() if b.startswith("nonlocal") else b for b in between])
    put(2, end["between"])
    kind = end["inputs"]
    put(1, [
        "def between(i, run):",
        "    if i > 1: change(i)",
        f"    x = dt.randn({'2 + 2 * (i % 2)' if kind == 'shapes' else '4'}, 3,"
        " generator=dt.Generator().manual_seed(i))",
    ])  # fmt: skip
    if kind == "requires":
        put(2, ["if i % 2: x.requires_grad_()"])
    if kind == "again":
        put(2, ["x = between.x = x if i % 2 == 0 else between.x"])
    if kind == "no_grad":
        put(2, ["dt.set_grad_enabled(i % 4 < 2)", "try:", "    out = run(x)",
                "except Exception as error:", "    return type(error).__name__",
                "finally:", "    dt.set_grad_enabled(True)"])  # fmt: skip
    else:
        call = "run(x, 1.0 + i % 2)" if kind == "scale" else "run(x)"
        put(2, ["try:", f"    out = {call}", "except Exception as error:",
                "    return type(error).__name__"])  # fmt: skip
    put(2, ["return finish(out, x, i)"])
    put(1, ["def look(): return [*leaves, *state, opt.state_dict()]", "return step, between, look"])
    return "\n".join(lines)


TAIL = """

def finish(out, x, i):
    parts = dt.tree.leaves(out) if not isinstance(out, dict) else list(out.values())
    parts = [p for p in parts if isinstance(p, dt.Tensor)]
    told = [(p.requires_grad, p.is_leaf, p.grad_fn is None) for p in parts]
    graded = [p for p in parts if p.requires_grad and not p.is_leaf]
    if i % 3 == 1: graded = graded[:1]
    if graded:
        try:
            sum((p * (k + 1)).sum() for k, p in enumerate(graded)).backward()
        except Exception as error:
            told.append(type(error).__name__)
    return out, told, x.grad
"""


def program(pieces: list[Piece], end: dict[str, Any]) -> str:
    """The whole module."""
    return text(pieces, end) + TAIL


def maker(source: str, name: str = "<step>") -> Callable:
    """``make`` of a program."""
    space: dict[str, Any] = {"__name__": "random_step"}
    exec(compile(source, name, "exec"), space)
    return space["make"]


def shrunk(pieces: list[Piece], end: dict[str, Any], fails: Callable[[str], bool]) -> str:
    """The text of a smaller program that still fails: pieces are left out as long as it does."""
    again = True
    while again:
        again = False
        for i in range(len(pieces)):
            fewer = pieces[:i] + pieces[i + 1 :]
            if fails(program(fewer, end)):
                pieces, again = fewer, True
                break
    for key, simple in (("inputs", "plain"), ("between", []), ("result", "None")):
        if end[key] != simple and fails(program(pieces, {**end, key: simple})):
            end = {**end, key: simple}
    return program(pieces, end)
