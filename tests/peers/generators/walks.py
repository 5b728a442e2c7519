"""Random graphs with Functions that return None, hooks and prehooks, walked once or twice: what
ran, in which order, and what it was given."""

from __future__ import annotations

import random
from typing import Any

_TWO = ("add", "mul", "stack")
_ONE = ("scale", "sin", "silence", "zeros", "nothing", "several", "unbind", "write", "again")


def functions(T: Any, log: list) -> dict:
    """The custom Functions of ``T``."""

    def function(name: str, forward: Any, backward: Any, materialize: bool = True) -> Any:
        class Own(T.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *args: Any) -> Any:
                ctx.set_materialize_grads(materialize)
                return forward(*args)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                log.append((name, values(grads)))
                return backward(*grads)

        return Own.apply

    def first_only(g: Any, h: Any) -> Any:
        return g if g is None else g * 3

    return {
        "silence": function("silence", lambda x: x * 2, lambda g: None),
        "zeros": function("zeros", lambda x: x * 2, lambda g: g * 2),
        "nothing": function("nothing", lambda x: x * 2, lambda g: g, materialize=False),
        "several": function("several", lambda x: (x * 3, x + 1), first_only, materialize=False),
        "half": function("half", lambda x, y: x + y, lambda g: (g, None)),
    }


def values(grads: Any) -> Any:
    """Gradients as plain numbers."""
    if isinstance(grads, (tuple, list)):
        return tuple(values(g) for g in grads)
    return None if grads is None else [round(float(x), 9) for x in grads.reshape(-1)]


class Walked:
    """One random graph in ``T``, to be walked."""

    def __init__(self, T: Any, again: Any, seed: int) -> None:
        self.T, self.again, self.draw, self.log = T, again, random.Random(seed), []
        self.own = functions(T, self.log)
        self.leaves = [
            T.tensor([0.5 + i, 1.5 - i], dtype=T.float64, requires_grad=True) for i in range(3)
        ]
        self.pool, self.written = list(self.leaves), False
        for i, leaf in enumerate(self.leaves):
            self._hook_leaf(leaf, f"leaf {i}")
        for step in range(self.draw.randint(3, 9)):
            self._step(f"v{step}")

    def _step(self, name: str) -> None:
        kind = self.draw.choice((*_ONE, *_TWO, "half", "silence"))
        x, y = self.draw.choice(self.pool), self.draw.choice(self.pool)
        for i, out in enumerate(self._made(kind, x, y)):
            self._hook(out, f"{name}.{i} {kind}")
            self.pool.append(out)

    def _made(self, kind: str, x: Any, y: Any) -> tuple:
        if kind in self.own:
            out = self.own[kind](*((x, y) if kind == "half" else (x,)))
            return out if isinstance(out, tuple) else (out,)
        if kind == "unbind":
            return (self.T.stack(x.unbind()),)
        if kind == "write":
            self.written = True  # the peer frees this node, which saves nothing
            base = x.clone()
            base[:1] = y[:1]
            return (base,)
        if kind == "again":
            return (self.again(lambda z: (z * z).sin(), x),)
        if kind == "stack":
            return ((self.T.stack([x, y]) * 0.5).sum(0),)  # (gradients that are no expanded views)
        made = {"add": lambda: x + y, "mul": lambda: x * y, "sin": x.sin, "scale": lambda: x * 0.5}
        return (made[kind](),)

    def _seen(self, name: str, changes: bool) -> Any:
        def hook(*grads: Any) -> Any:
            self.log.append((name, values(grads)))
            if not changes or grads[0] is None:
                return None
            if isinstance(grads[0], tuple):
                return tuple(None if g is None else g * 2 for g in grads[0])
            return grads[0] * 2

        return hook

    def _chosen(self, chance: float = 0.35) -> bool:
        return self.draw.random() < chance

    def _hook_leaf(self, leaf: Any, name: str) -> None:
        if self._chosen():
            leaf.register_hook(self._seen(f"{name} hook", self._chosen()))
        if self._chosen():
            leaf.register_post_accumulate_grad_hook(lambda t: self.log.append((name, "written")))

    def _hook(self, out: Any, name: str) -> None:
        if self._chosen():
            out.register_hook(self._seen(f"{name} hook", self._chosen()))
        if self._chosen():
            out.grad_fn.register_prehook(self._seen(f"{name} before", self._chosen()))
        if self._chosen():
            out.grad_fn.register_hook(self._seen(f"{name} after", self._chosen()))
        if self._chosen(0.2):
            out.retain_grad()

    def walk(self) -> tuple:
        """Walk it; what happened, and the gradients in the end."""
        roots = [self.draw.choice(self.pool[3:]).sum() for _ in range(self.draw.randint(1, 2))]
        way = self.draw.choice(("backward", "inputs", "grad"))
        keep = self._chosen(0.5) or self.written
        for _ in range(self.draw.randint(1, 2)):
            try:
                self.log.append((way, self._walked(way, roots, keep)))
            except RuntimeError:
                self.log.append(("raised",))
        grads = [values(t.grad) if t.is_leaf or t.retains_grad else None for t in self.pool]
        of_leaves = [entry for entry in self.log if entry[0].startswith("leaf")]
        others = [entry for entry in self.log if not entry[0].startswith("leaf")]
        # Which leaf comes first, the peer leaves open.
        return others, sorted(of_leaves, key=repr), grads

    def _walked(self, way: str, roots: list, keep: bool) -> Any:
        autograd = self.T.autograd
        if way == "backward":
            return autograd.backward(roots, retain_graph=keep)
        if way == "inputs":
            wanted = self.draw.sample(self.pool, self.draw.randint(1, 2))
            return autograd.backward(roots, retain_graph=keep, inputs=wanted)
        wanted = self.draw.choice(([self.draw.choice(self.pool)], self.leaves))
        return values(autograd.grad(roots, wanted, retain_graph=keep, allow_unused=True))
