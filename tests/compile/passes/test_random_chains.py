"""Drawn programs of elementwise operations and their gradients: compiled ones give eager's bits."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile.passes import region

PARTS, EACH, CALLS = 6, 40, 4
LAYOUTS = 120
SHAPES = [(5, 6), (5, 6), (5, 6), (6,), (5, 1), (1, 6), (), (2, 5, 6)]
ODD = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e30, 1e30]
ONE = [
    "{a}.relu()", "-{a}", "{a}.abs()", "{a}.sqrt()", "{a} * {n}", "{a} + {n}", "{n} - {a}",
    "{n} / {a}", "{a} / {n}", "{a}.square()", "{a}.rsqrt()", "{a}.reciprocal()", "{a}.floor()",
    "{a}.ceil()", "{a}.clamp({m}, {n})", "{a}.clamp(min={m})", "dt.nn.functional.gelu({a})",
    "dt.nn.functional.silu({a})", "{a}.erf()", "{a}.exp()", "{a}.tanh()", "{a} ** 2",
    "{a}.to(dt.float64)", "{a}.to(dt.float32)", "{a}.clone()", "{a} * 1.0", "{a} - 0.0",
    "{a} + 0.0", "{a}.sum(-1, keepdim=True)", "{a}.T.contiguous().T",
    "{a}.expand(2, *{a}.shape)[1]", "{a}.detach() * {n}",
    "{a}.add_({n}) if not {a}.requires_grad else {a} * {n}",
    "dt.nn.functional.leaky_relu({a}, 0.1)", "{a}.sigmoid()", "{a}.round()", "{a} % 2.0",
]  # fmt: skip
TWO = [
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "dt.maximum({a}, {b})",
    "dt.minimum({a}, {b})", "dt.where({a} > {b}, {a}, {b})", "dt.where({a} == {b}, {a}, 0.5)",
    "({a} <= {b}) * {a}", "{a}.to({b}.dtype) + {b}", "dt.where({a} != {a}, {b}, {a})",
    "dt.addcmul({a}, {a}, {b})", "dt.lerp({a}, {b}.to({a}.dtype), 0.25)",
    "{a}.masked_fill({b} > 0, 2.0)",
]  # fmt: skip


def draw(seed):
    """The text of a function of three tensors, and their shapes, types and layouts."""
    rng = random.Random(seed)
    names, lines = ["x", "y", "z"], []
    for i in range(rng.randint(2, 14)):
        a, b = rng.choice(names), rng.choice(names)
        n, m = rng.choice([2, 0.5, -1.5, 3, 1e-3, 0.1]), rng.choice([-2, -0.25])
        rule = rng.choice(TWO if rng.random() < 0.5 else ONE).format(a=a, b=b, n=n, m=m)
        names.append(f"v{i}")
        lines.append(f"    v{i} = {rule}")
    results = rng.sample(names[3:], min(len(names) - 3, rng.randint(1, 3)))
    grads = rng.random() < 0.6
    source = ["def fn(x, y, z):", *lines]
    if grads:
        terms = " + ".join(f"({r} * 1.5).sum()" for r in results)
        source.append(f"    total = {terms}")
        source.append("    got = [g for g in (x, y, z) if g.requires_grad]")
        source.append("    gs = dt.autograd.grad(total, got, allow_unused=True)")
        source.append(f"    return [{', '.join(results)}, *gs]")
    else:
        source.append(f"    return [{', '.join(results)}]")
    kinds = [(rng.choice(SHAPES), rng.choice(["f4", "f4", "f4", "f8"]), rng.random() < 0.25)
             for _ in range(3)]  # fmt: skip
    return "\n".join(source), kinds, grads


FEW = [
    "-{a}", "{a} * 2", "{a}.abs()", "{a} + 0.5", "{a}.relu()", "{a} * 1.0", "{a}.clone()",
    "{a}.to(dt.float64)", "{a}.to(dt.float32)", "{a}.sqrt()", "dt.nn.functional.gelu({a})",
    "{a} + {b}", "{a} * {b}", "dt.where({a} > 0, {a}, {b})", "{b} - {a}", "dt.maximum({a}, {b})",
]  # fmt: skip


def draw_layouts(seed):
    """The same of arrays that lie in any way: axes in any order, expanded, in steps, backwards."""
    rng = random.Random(seed)
    whole = [rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randint(1, 4))]
    kinds = []
    for _ in range(3):
        shape = whole if rng.random() < 0.6 else whole[rng.randint(0, len(whole)) :]
        shape = tuple(n if rng.random() < 0.8 else 1 for n in shape)
        kinds.append((shape, rng.choice(["f4", "f4", "f8"]), Layout(rng.getrandbits(30))))
    names, lines, grads = ["x", "y", "z"], [], rng.random() < 0.5
    for i in range(rng.randint(2, 9)):
        rule = rng.choice(FEW).format(a=rng.choice(names), b=rng.choice(names))
        names.append(f"v{i}")
        lines.append(f"    v{i} = {rule}")
    results = ", ".join(names[3:])
    source = ["def fn(x, y, z):", *lines]
    if grads:
        source.append(f"    total = sum((r * r).sum() for r in [{results}] if r.requires_grad)")
        source.append("    gs = dt.autograd.grad(total, [x, y, z], allow_unused=True)")
    source.append(f"    return [{results}{', *gs' if grads else ''}]")
    return "\n".join(source), kinds, grads


class Layout(int):
    """How an array lies, drawn by this number."""

    def of(self, a):
        """The numbers of ``a`` (those of the first places, where it is expanded), laid out so."""
        rng = random.Random(self)
        order = rng.sample(range(a.ndim), a.ndim)
        once = [slice(0, 1) if rng.random() < 0.25 else slice(None) for _ in order]
        few = a.transpose(order)[tuple(once)]
        room = np.zeros([2 * n for n in few.shape], a.dtype)
        steps = [rng.choice([1, 1, 1, 1, 2, -1]) for _ in order] if rng.random() < 0.3 else []
        cut = tuple(slice(None) if s == 1 else slice(None, None, s) for s in steps)
        room = (room[cut] if steps else room)[tuple(slice(0, n) for n in few.shape)]
        laid = room if steps else np.ascontiguousarray(room)
        laid[...] = few
        wide = np.broadcast_to(laid, [a.shape[k] for k in order])
        return wide.transpose(np.argsort(order)) if a.ndim else wide


def given(kinds, grads, seed):
    """Arguments: some have odd numbers, some do not lie in rows."""
    rng = np.random.default_rng(seed)
    out = []
    for shape, kind, turned in kinds:
        if isinstance(turned, Layout):
            t = dt.from_numpy(turned.of(np.asarray(rng.normal(size=shape), kind)))
            out.append(t.requires_grad_() if grads else t)
            continue
        a = rng.normal(size=shape[::-1] if turned else shape).astype(kind)
        if seed % 2 and a.size:
            a.flat[rng.integers(0, a.size, 3)] = rng.choice(ODD, 3)
        t = dt.from_numpy(a.T if turned else a)
        out.append(t.requires_grad_() if grads else t)
    return out


def bits(results):
    return [None if r is None else (str(r.dtype), r.shape, steps(r), canonical(r)) for r in results]


def steps(r):
    """The strides of the dimensions that have more than one place."""
    return [step for step, n in zip(r.stride(), r.shape, strict=True) if n > 1]


def canonical(r):
    """The numbers, with one nan: the sign and payload of those that operations make are open."""
    a = r.detach().numpy().copy()
    a[np.isnan(a)] = np.nan
    return a.tobytes()


def difference(source, kinds, grads, budget=1.0):
    scope = {"dt": dt}
    exec(compile(source, "<drawn>", "exec"), scope)
    fn = scope["fn"]
    run = dt.compile(fn, options={"activation_memory_budget": budget})
    for call in range(CALLS):
        found = []
        for each in (fn, run):
            try:
                found.append(bits(each(*given(kinds, grads, call))))
            except Exception as error:
                found.append(f"{type(error).__name__}: {error}"[:60])
        if found[0] != found[1]:
            return f"call {call}: eager {found[0]}\ncompiled {found[1]}\n{source}\n{kinds}"
    return None


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_chains_have_eagers_bits(part, monkeypatch):
    monkeypatch.setattr(region, "_RUNS", part % 3)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(part * EACH, (part + 1) * EACH):
            why = difference(*draw(seed), budget=1.0 if part < 3 else 0.0)
            assert why is None, f"seed {seed}\n{why}"


def test_compiled_chains_lie_as_eagers_do(monkeypatch):
    monkeypatch.setattr(region, "_RUNS", 0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(LAYOUTS):
            why = difference(*draw_layouts(seed))
            assert why is None, f"seed {seed}\n{why}"
