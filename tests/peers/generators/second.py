"""Graphs of graphs: autograd.grad with create_graph, penalties, hooks, accumulation, no_grad."""

from __future__ import annotations

from peers.generators.draw import Draw, floating
from peers.generators.finish import backward, hook

SMOOTH = """sin cos tanh exp sigmoid square neg log1p atan expm1 erf softplus silu gelu
tanhshrink selu elu logsigmoid mish relu leaky_relu hardtanh abs celu softsign relu6 hardswish
hardsigmoid reciprocal sqrt""".split()


def program(d: Draw) -> None:
    d.dtypes = d.choice((("float64",), ("float64",), ("float32",)))
    base = d.shape(0, 2, sizes=(1, 2, 3))
    for _ in range(d.rng.randint(1, 3)):
        d.leaf(d.fitting(base) if d.chance(0.3) else base, grad=True, positive=d.chance(0.4))
    for _ in range(d.rng.randint(3, 9)):
        d.choice(
            (
                apply,
                apply,
                apply,
                hook,
                differentiate,
                differentiate,
                accumulate,
                modes,
                inplace,
                state,
            )
        )(d)
    differentiate(d)
    backward(d)


def graph(d: Draw) -> str | None:
    return d.pick(lambda t: floating(t) and t.requires_grad)


def apply(d: Draw) -> None:
    x = graph(d)
    if x is None:
        return
    t = d[x]
    y = d.pick(lambda u: floating(u) and u.shape == t.shape) or x
    name = d.choice(SMOOTH)
    function = f"F.{name}({x})" if hasattr(d.peer.nn.functional, name) else f"{x}.{name}()"
    texts = [
        function, function, function, f"{x} * {y}", f"{x} / ({y} * {y} + 1)", f"{x} - {y}",
        f"{x}.pow(3)",
        f"{x} ** 2", f"{x}.sum()", f"{x}.mean(-1)", f"T.maximum({x}, {y})",
        f"T.where({x} > 0, {x}, {y} * {y})",
        f"{x}.t()" if t.dim() < 3 else x, f"{x}.unsqueeze(0)", f"{x}.expand({[2, *t.shape]})",
        f"{x}.flip(-1)",
        f"F.softmax({x}, -1)", f"F.log_softmax({x}, -1)", f"{x}.logsumexp(-1)", f"{x}.norm()",
        f"{x}.var()" if t.numel() > 1 else x,
        f"{x}.cumsum(-1)", f"{x}.prod()", f"T.cat([{x}, {y}], -1)", f"{x}.clamp(-1, 2)",
        f"{x}.amax(-1)",
        f"{x}.max()", f"{x}.std(-1, unbiased=False)", f"{x}.reshape(-1)",
        f"F.layer_norm({x}, {list(t.shape[-1:])})",
        f"{x} @ {x}.t()" if t.dim() == 2 else f"{x} + 1", f"{x}[..., 0]", f"{x}[..., [0, 0]]",
        f"{x}.clone()",
        f"T.atan2({x}, {y} + 3)", f"F.mse_loss({x}, {y})",
        f"F.linear({x}, {x})" if t.dim() == 2 else f"{x} * 2",
        f"F.smooth_l1_loss({x}, {y})", f"{x}.masked_fill({x} > 0, 0.5)",
        f"{x}.tril()" if t.dim() > 1 else f"{x}.sin()",
        f"T.addcmul({x}, {y}, {y})", f"T.logaddexp({x}, {y})",
        f"{x}.sort(stable=True)[0]",
        f"F.normalize({x}, dim=-1)", f"F.cosine_similarity({x}, {y}, dim=-1)", f"{x}.roll(1)",
    ]  # fmt: skip
    d.let(d.choice(texts), rough=True, keep_errors=0.1)


def differentiate(d: Draw) -> None:
    """grad of something, with or without a graph of its own; sometimes a penalty is made of it."""
    root = d.pick(lambda t: floating(t) and t.requires_grad and not t.is_leaf)
    if root is None:
        return
    # Through which results a gradient depends on leaves is a matter of how rules are written.
    again = any("create_graph" in line for line in d.lines)
    again = again or any("register_hook" in line for line in d.lines)  # (see deliberate.py)
    sources = d.tensors(lambda t: floating(t) and t.requires_grad and (t.is_leaf or not again))
    if not sources:
        return
    chosen = d.rng.sample(sources, min(len(sources), d.rng.randint(1, 2)))
    if not d.leads(root, chosen):
        return
    how = d.choice((", create_graph=True", ", create_graph=True", ", retain_graph=True", ""))
    if d.chance(0.7):
        how += ", allow_unused=True" if d.chance(0.7) else ", materialize_grads=True"
    cotangent = d.gradient(d[root])
    if d.chance(0.2):  # (the gradient of the root is this very tensor)
        grad = "create_graph" in how
        cotangent = d.leaf(list(d[root].shape), str(d[root].dtype).rpartition(".")[2], grad=grad)
        chosen = [n for n in chosen if n != root] or sources[:1]
    found = d.let(
        f"T.autograd.grad({root}, [{', '.join(chosen)}], {cotangent}{how})", keep_errors=0.2
    )
    if found is None or "create_graph" not in how:
        return
    for i, g in enumerate(d[found]):
        if g is not None and d.chance(0.8):
            d.let(d.choice((f"{found}[{i}] * 1", f"{found}[{i}].pow(2).sum()",
            f"{found}[{i}].sum()",
                            f"({found}[{i}] ** 2).mean()")), rough=True)  # fmt: skip


def accumulate(d: Draw) -> None:
    """backward in the middle, which adds to .grad, with a graph of the gradients or without."""
    root = d.pick(lambda t: floating(t) and t.requires_grad and not t.is_leaf)
    if root is None:
        return
    leaves = d.tensors(lambda t: t.requires_grad and t.is_leaf)
    extra = d.choice(("", ", retain_graph=True", ", retain_graph=True", ", create_graph=True"))
    if d.chance(0.25) and leaves:
        extra += f", inputs=[{d.choice(leaves)}]"
    if d.add(f"{root}.backward({d.gradient(d[root])}{extra})", keep_errors=0.2) and leaves:
        leaf = d.choice(leaves)
        if d[leaf].grad is not None:
            d.let(f"{leaf}.grad * 1", rough=True)
            if d.chance(0.3):
                d.add(f"{leaf}.grad = None" if d.chance(0.5) else f"{leaf}.grad.zero_()")


def modes(d: Draw) -> None:
    """Parts computed without a graph."""
    x = d.pick(floating)
    if x is None:
        return
    name = f"v{d.count}"
    mode = d.choice(
        (
            "T.no_grad()",
            "T.no_grad()",
            "T.enable_grad()",
            "T.set_grad_enabled(False)",
            "T.inference_mode()",
        )
    )
    if d[x].requires_grad and not mode.startswith("T.enable"):
        work = d.choice((f"{x} * 2", f"{x}.sin()", f"{x}.detach()"))  # (views: see deliberate.py)
    else:
        work = any_work(d, x)
    if d.add(f"with {mode}: {name} = {work}", keep_errors=0):
        d.count += 1
        d.rough.add(name)


def any_work(d: Draw, x: str) -> str:
    turned = f"{x}.t()" if d[x].dim() < 3 else x
    return d.choice((f"{x} * 2", f"{x}.sin()", f"{x}.view(-1)", f"{x}.detach()", turned))


def inplace(d: Draw) -> None:
    """Writes between the use of a value and its gradient."""
    x = d.pick(
        lambda t: floating(t) and not (t.is_leaf and t.requires_grad) and not t.is_inference()
    )
    if x is None:
        return
    y = d.pick(lambda t: floating(t) and t.shape == d[x].shape)
    calls = [
        "mul_(2)",
        "add_(1)",
        "sin_()",
        "exp_()",
        "relu_()",
        "zero_()",
        "tanh_()",
        "square_()",
        "sigmoid_()",
    ]
    if y is not None:
        calls += [f"add_({y})", f"mul_({y})", f"sub_({y})", f"copy_({y})", f"add_({y}, alpha=2)"]
    d.add(f"{x}.{d.choice(calls)}", keep_errors=0.2)


def state(d: Draw) -> None:
    """What changes how a tensor takes part."""
    x = d.pick(floating)
    if x is None:
        return
    if d[x].is_leaf:
        texts = ["requires_grad_(False)", "requires_grad_()"]
    else:
        texts = ["retain_grad()", "detach_()", "requires_grad_()"]
    if d[x].is_leaf and any("autograd.grad" in line for line in d.lines):
        return  # it may be a cotangent, which the peer hands back as the gradient of the root
    d.add(f"{x}.{d.choice(texts)}", keep_errors=0.2)
