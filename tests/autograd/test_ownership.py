"""Whose an array is: gradients of leaves share memory with nothing, whatever way they came.

Random graphs are drawn of operations whose derivative rules give the gradient that came to them, or
a view of it. What a program can hold of a backward is of two kinds. *Owned*: gradients in ``.grad``
of leaves and of tensors that retain theirs; each has memory of its own, so that a step in place
changes it alone. *Shown*: what was fed, arguments of hooks, what a custom Function saved or gave;
those may be one array, as in PyTorch.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import disttrain as dt
from disttrain import autograd, nn
from disttrain.core import Tensor, wrap
from disttrain.core.backward.checkpoint import checkpoint
from disttrain.core.backward.split_walk import backward_inputs
from disttrain.ops.declare import REGISTRY
from support.cases import table

SHAPE = (2, 3)


def drawn(rng: random.Random, requires_grad: bool = False) -> Tensor:
    numbers = [[rng.randint(1, 8) / 2 for _ in range(SHAPE[1])] for _ in range(SHAPE[0])]
    return dt.tensor(numbers, dtype=dt.float64, requires_grad=requires_grad)


# --- rules --------------------------------------------------------------------------------------


def arrays_in(value) -> list[np.ndarray]:
    if isinstance(value, Tensor):
        value = value.array
    if isinstance(value, np.ndarray):
        return [value]
    return [a for v in value for a in arrays_in(v)] if isinstance(value, (tuple, list)) else []


def with_rules() -> list[str]:
    return [n for n in table.NAMES if REGISTRY[n].differentiable]


def recorded(name: str):
    """The primitive's samples: the node of each, with the arrays that others have."""
    prim = REGISTRY[name]
    for given, params in table.samples(name):
        given = table.settle(name, given, params)
        args = [wrap(np.array(a)) if isinstance(a, np.ndarray) else a for a in given]
        for i, a in enumerate(args):
            if isinstance(a, Tensor) and a.array.dtype.kind in "fc":
                if i not in table.CONSTANT.get(name, ()):
                    a.requires_grad_()
        outs = table.many(prim(*args, **params))
        nodes = [t.graph_node() for t in outs if isinstance(t, Tensor)]
        nodes = [getattr(node, "node", node) for node in nodes if node is not None]
        if nodes:
            yield nodes[0], outs, arrays_in([args, outs, list(params.values())])


@pytest.mark.parametrize("name", with_rules())
def test_rules_give_what_came_or_a_view_or_an_array_of_its_own(name):
    """Which is what the walk goes by (``makes``)."""
    for node, outs, held in recorded(name):
        assert node.makes
        given = tuple(np.ones(o.shape, o.array.dtype) for o in outs)
        found = []
        for _ in range(2):  # nor do they keep one for the next time
            g = given[0] if node.shapes is None else given
            found += [r for r in node.run(g, False) if isinstance(r, np.ndarray)]
        made = [r for r in found if r.base is None and not any(r is g for g in given)]
        for i, r in enumerate(made):
            others = [*held, *given, *made[:i], *made[i + 1 :]]
            assert r.flags.writeable
            assert not any(np.may_share_memory(r, a) for a in others if a.size and r.size)


# --- graphs -------------------------------------------------------------------------------------


class Twice(autograd.Function):
    """A sum whose backward gives both what came."""

    @staticmethod
    def forward(ctx, a, b):
        return a + b

    @staticmethod
    def backward(ctx, g):
        return g, g


class Viewed(autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a.clone()

    @staticmethod
    def backward(ctx, g):
        return g.unsqueeze(0)[0]


class Detached(Viewed):
    @staticmethod
    def backward(ctx, g):
        return g.detach()


class Saved(autograd.Function):
    """A product with numbers that the program has as well, whose backward gives them."""

    @staticmethod
    def forward(ctx, a, numbers):
        ctx.save_for_backward(numbers)
        return a * numbers

    @staticmethod
    def backward(ctx, g):
        return ctx.saved_tensors[0], None


def halves(a: Tensor, b: Tensor) -> Tensor:
    left, right = a.split([1, 2], dim=1)
    return dt.cat([right, left], 1) + b


def of_parts(a: Tensor, b: Tensor) -> Tensor:
    one, other = a.unbind(0)
    return dt.stack([other, b[0]]) - dt.stack([one, one])


ONE: list[Callable[[Tensor], Tensor]] = [
    lambda a: a.clone(),
    lambda a: a + 1.0,
    lambda a: a - dt.ones(SHAPE, dtype=a.dtype),
    lambda a: a * 2.0,
    lambda a: -a,
    lambda a: a.view(3, 2).view(*SHAPE),
    lambda a: a.reshape(-1).reshape(SHAPE),
    lambda a: a.t().t(),
    lambda a: a.t().contiguous().t(),
    lambda a: a.unsqueeze(0).squeeze(0),
    lambda a: a.unsqueeze(0).sum(0),
    lambda a: a[None].mean(0),
    lambda a: a.expand(*SHAPE),
    lambda a: a.expand(2, *SHAPE)[1],
    lambda a: a.contiguous(),
    lambda a: a.flatten().unflatten(0, SHAPE),
    lambda a: a[:, [2, 1, 0]],
    lambda a: a[:, :],
    lambda a: a.flip(0),
    lambda a: a.to(dt.float32).to(dt.float64),
    lambda a: a.double(),
    lambda a: dt.where(a > 0, a, 0.0 * a),
    lambda a: dt.cat(a.chunk(2)),
    lambda a: dt.cat([a]),
    lambda a: dt.stack(list(a)),
    lambda a: nn.functional.pad(a, (1, 0))[:, 1:],
    lambda a: nn.functional.dropout(a, 0.0),
    lambda a: a.clone().add_(1.0),
    lambda a: a.clone().mul_(2.0),
    lambda a: checkpoint(lambda x: x + 1.0, a, use_reentrant=False),
    Viewed.apply,
    Detached.apply,
]
TWO: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a + b + a,
    lambda a, b: a + a,
    lambda a, b: dt.add(a, b, alpha=1),
    lambda a, b: dt.stack([a, b]).sum(0),
    lambda a, b: dt.cat([a, b])[:2],
    lambda a, b: dt.cat([a, b]).view(2, *SHAPE).sum(0),
    lambda a, b: dt.where(a > b, a, b),
    lambda a, b: a + b[0],
    lambda a, b: a.clone().add_(b),
    lambda a, b: a.clone().copy_(b) + a,
    lambda a, b: sum(dt.broadcast_tensors(a, b)),
    lambda a, b: dt.add(*dt.broadcast_tensors(a, b[:1])),
    lambda a, b: dt.lerp(a, b, 0.5),
    lambda a, b: dt.addcmul(a, b, b),
    lambda a, b: nn.functional.linear(a, b.t()[:2].t()[:, :1].expand(2, 3)).repeat(1, 2)[:, :3],
    halves,
    of_parts,
    Twice.apply,
]


class Graph:
    """Leaves, and what was made of them by the operations that ``seed`` draws."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.shown: list[Tensor] = []
        self.leaves = [drawn(rng, True) for _ in range(3)]
        self.inner: list[Tensor] = []
        pool = list(self.leaves)
        for _ in range(rng.randint(1, 7)):
            pool.append(self._more(pool))
            if not any(pool[-1] is t for t in pool[:-1]):
                self.inner.append(pool[-1])
        self.roots = list(dict.fromkeys([pool[-1], rng.choice(pool)]))
        self.fed = [drawn(rng) for _ in self.roots]
        if rng.random() < 0.3:
            self.fed = self.fed[:1] * len(self.roots)
        self.shown += self.fed

    def _more(self, pool: list[Tensor]) -> Tensor:
        rng = self.rng
        a, b = rng.choice(pool), rng.choice(pool)
        kind = rng.random()
        if kind < 0.1:
            numbers = drawn(rng)
            self.shown.append(numbers)
            return Saved.apply(a, numbers)
        return rng.choice(ONE)(a) if kind < 0.45 else rng.choice(TWO)(a, b)

    def watch(self) -> None:
        """Put hooks that keep what they see on some tensors and nodes, and let some tensors retain
        their gradients."""
        for t in [*self.leaves, *self.inner]:
            what = self.rng.randint(0, 9)
            if what == 0:
                t.register_hook(lambda g: self.shown.append(g))
            elif what == 1:
                t.register_hook(lambda g: self.shown.append(g) or g)
            elif what == 2:
                t.register_hook(lambda g: g.unsqueeze(0)[0])
            elif what == 3 and t.grad_fn is not None:
                t.grad_fn.register_hook(lambda ins, outs: self._show(ins))
            elif what == 4 and t.grad_fn is not None:
                t.grad_fn.register_prehook(self._show)
            elif what <= 6 and t.grad_fn is not None:
                t.retain_grad()

    def _show(self, gradients: tuple) -> None:
        self.shown += [g for g in gradients if g is not None]

    def owned(self) -> list[Tensor]:
        kept = [t for t in [*self.leaves, *self.inner] if t.is_leaf or t.retains_grad]
        return [t.grad for t in kept if t.grad is not None]

    def expected(self) -> list[Tensor]:
        """The gradients of the leaves, by a walk that writes to nothing."""
        found = autograd.grad(
            self.roots, self.leaves, self.fed, create_graph=True, allow_unused=True
        )
        return [None if g is None else g.detach().clone() for g in found]


def check_apart(owned: list[Tensor], shown: list[Tensor]) -> None:
    """Writing to one changes no other."""
    owned, everything = list(owned), [*owned, *shown]
    for i, g in enumerate(owned):
        for other in everything[:i] + everything[i + 1 :]:
            assert not np.shares_memory(g.detach().numpy(), other.detach().numpy())
    before = [t.detach().numpy().copy() for t in everything]
    for i, g in enumerate(owned):
        with dt.no_grad():
            g.add_(1.0)
        for j, t in enumerate(everything):
            assert (t.detach().numpy() == before[j] + (j <= i)).all()


def check_values(graph: Graph, want: list, factor: float = 1.0) -> None:
    for leaf, g in zip(graph.leaves, want, strict=True):
        if g is None:
            assert leaf.grad is None
        else:
            assert np.allclose(leaf.grad.detach().numpy(), factor * g.numpy(), rtol=1e-6, atol=1e-6)


def plainly(graph: Graph) -> None:
    autograd.backward(graph.roots, graph.fed)


def twice(graph: Graph) -> None:
    autograd.backward(graph.roots, graph.fed, retain_graph=True)
    autograd.backward(graph.roots, graph.fed)


def recording(graph: Graph) -> None:
    autograd.backward(graph.roots, graph.fed, create_graph=True)


def to_inputs(graph: Graph) -> None:
    autograd.backward(graph.roots, graph.fed, inputs=graph.leaves)


def in_two_parts(graph: Graph) -> None:
    """What the first part gives is the caller's, as the results of ``grad`` are."""
    found, rest = backward_inputs(graph.roots, graph.fed, graph.leaves[:1])
    graph.shown += [g for g in found if g is not None]
    rest.run()
    for leaf, g in zip(graph.leaves, found, strict=False):
        leaf.grad = None if g is None else g.clone()


def beside_grad(graph: Graph) -> None:
    found = autograd.grad(
        graph.roots, [*graph.leaves, *graph.inner], graph.fed, retain_graph=True, allow_unused=True
    )
    graph.shown += [g for g in found if g is not None]
    plainly(graph)


WAYS = [plainly, twice, recording, to_inputs, in_two_parts, beside_grad]


@pytest.mark.parametrize("watched", [False, True], ids=["", "watched"])
@pytest.mark.parametrize("way", WAYS, ids=[w.__name__ for w in WAYS])
@pytest.mark.parametrize("part", range(4))
def test_gradients_of_random_graphs(part, way, watched):
    for seed in range(50 * part, 50 * part + 50):
        graph = Graph(seed)
        want = graph.expected()
        if watched:
            graph.watch()
        way(graph)
        check_values(graph, want, 2.0 if way is twice else 1.0)
        check_apart(graph.owned(), graph.shown)


@pytest.mark.parametrize("part", range(4))
def test_a_step_inside_backward_changes_nothing_that_is_still_to_come(part):
    """Hooks that use up a gradient as soon as it is there, as optimizers in backward do."""
    for seed in range(50 * part, 50 * part + 50):
        graph = Graph(seed)
        want = graph.expected()
        found: dict[Tensor, Tensor] = {}

        def use_up(leaf, found=found):
            found[leaf] = leaf.grad.clone()
            leaf.grad.fill_(float("nan"))

        for leaf in graph.leaves:
            leaf.register_post_accumulate_grad_hook(use_up)
        plainly(graph)
        for leaf in graph.leaves:
            leaf.grad = found.get(leaf)
        check_values(graph, want)


@pytest.mark.parametrize("part", range(4))
def test_gradients_that_somebody_has_are_not_written_to(part):
    """Sums of a walk go into arrays that are the walk's: not into those that a hook, a retained
    gradient or ``grad`` gave away."""
    for seed in range(50 * part, 50 * part + 50):
        graph = Graph(seed)
        seen: list[tuple[Tensor, np.ndarray]] = []
        for t in [*graph.leaves, *graph.inner]:
            t.register_hook(lambda g, seen=seen: seen.append((g, g.numpy().copy())))
        fed = [g.numpy().copy() for g in graph.fed]
        plainly(graph)
        check_apart(graph.owned(), [])
        assert all((g.numpy() == before).all() for g, before in seen)
        assert all((g.numpy() == before).all() for g, before in zip(graph.fed, fed, strict=True))


# --- other ways to the gradients of leaves ------------------------------------------------------


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("whole", [False, True], ids=["forward", "step"])
def test_of_compiled_functions(part, whole):
    for seed in range(20 * part, 20 * part + 20):
        rng = random.Random(seed)
        ops = [(rng.choice(TWO[:10]), rng.choice(ONE[:16])) for _ in range(3)]
        leaves = [drawn(rng, True) for _ in range(3)]

        def forward(a, b, c, ops=ops):
            for two, one in ops:
                a, b, c = b, two(a, one(c)), a
            return b, b + c

        def step(*fed, forward=forward, leaves=leaves):
            autograd.backward(forward(*leaves), fed)

        run = dt.compile(step if whole else forward)
        kept: list[Tensor] = []
        want = None
        for _ in range(4):
            fed = [drawn(random.Random(seed)) for _ in range(2)]
            if whole:
                run(*fed)
            else:
                autograd.backward(run(*leaves), fed)
            grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
            kept += [*fed, *grads]
            now = [g.tolist() for g in grads]
            want = want or now
            assert now == want
            for leaf in leaves:
                leaf.grad = None
        check_apart(kept, leaves)


def test_of_tables_that_are_looked_up():
    """Sparse and dense gradients of one table, of two tables that one gradient came to."""
    index = dt.tensor([0, 2, 2])
    one, other = (dt.ones(4, 3, dtype=dt.float64, requires_grad=True) for _ in range(2))
    for sparse in (False, True):
        fed = dt.ones(3, 3, dtype=dt.float64)
        rows = [nn.functional.embedding(index, t, sparse=sparse) for t in (one, other, one)]
        (rows[0] + rows[1] + rows[2]).backward(fed)
        grads = [t.grad.coalesce().values() if sparse else t.grad for t in (one, other)]
        check_apart(grads, [fed])
        one.grad = other.grad = None


def test_a_gradient_that_came_alone_is_not_copied():
    """What a rule has made becomes the gradient, through operations that hand it on."""
    made: list[np.ndarray] = []
    for through in (lambda p: p, lambda p: p + 1.0, lambda p: p.clone(), lambda p: p.clone() - 2.0):
        p = drawn(random.Random(0), True)
        y = through(p) * drawn(random.Random(1))
        node = y.graph_node()
        run = node.run

        def seen(*args, run=run):
            found = run(*args)
            made.append(found[0])
            return found

        node.run = seen
        y.backward(dt.ones(*SHAPE, dtype=dt.float64))
        assert p.grad.array is made[-1]


def test_a_hook_of_any_gradient_leaves_out_what_is_frozen():
    seen, x, frozen = [], dt.ones(2, requires_grad=True), dt.ones(2)
    dt.autograd.graph.register_multi_grad_hook([frozen, x], seen.append, mode="any")
    (x * frozen).sum().backward()
    assert [g.tolist() for g in seen] == [[1.0, 1.0]]
