"""How programs end: hooks on the way, then backward from a few results."""

from __future__ import annotations

from peers.generators.draw import Draw, smooth

HOOKS = (
    "{x}.register_hook(lambda g: log.append(('{n}', g if g is None else g.clone())))",
    "{x}.register_hook(lambda g: g * 2)",
    "{x}.register_hook(lambda g: log.append(('{n}', g.clone())) or -g)",
)


def hook(d: Draw) -> None:
    """A hook on a tensor that has a graph, or its gradient kept."""
    # (The peer crashes when a view whose base was written to is given one.)
    x = d.pick(lambda x: x.requires_grad and not (x._is_view() and x._version))
    if x is None:
        return
    if d.chance(0.4):
        d.add(f"{x}.retain_grad()")
    else:
        d.add(d.choice(HOOKS).format(x=x, n=x))


def backward(d: Draw, roots: int = 2) -> None:
    """Backward from up to ``roots`` results, with cotangents of any layout."""
    last = [n for n in d.tensors(lambda x: smooth(x) and x.requires_grad) if not d[n].is_leaf]
    chosen = (
        last[-1:] + d.rng.sample(last[:-1], min(len(last) - 1, d.rng.randint(0, roots - 1)))
        if last
        else []
    )
    for i, root in enumerate(chosen):
        keep = i + 1 < len(chosen) or d.chance(0.1)
        retain = ", retain_graph=True" if keep else ""
        x = d[root]
        if d.chance(0.2):
            leaves = d.tensors(lambda x: x.requires_grad and x.is_leaf)
            wanted = d.rng.sample(leaves, d.rng.randint(1, len(leaves))) if leaves else []
            if wanted and d.leads(root, wanted):
                d.let(
                    f"T.autograd.grad({root}, [{', '.join(wanted)}], {d.gradient(x)}, "
                    f"allow_unused=True{retain})"
                )
                continue
        if x.dim() == 0 and not x.is_complex() and d.chance(0.5):
            d.add(f"{root}.backward({retain[2:]})")
        else:
            d.add(f"{root}.backward({d.gradient(x)}{retain})")
    for n in chosen:
        if d.chance(0.15):
            d.let(f"{n}.grad is None")
