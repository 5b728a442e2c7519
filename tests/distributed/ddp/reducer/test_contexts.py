"""DDP in backward passes whose gradients go to a context instead of ``.grad``."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.core.backward.engine import Walk
from disttrain.errors import LaunchError, PeerFailed
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

DDP = dist.DistributedDataParallel


class Context(dict):
    """Gradients of leaves, as a context of distributed autograd has them."""

    def put(self, leaf, grad):
        self[leaf] = grad

    def sink(self, acc, g, own):
        leaf = acc.variable
        if acc.store is not None:
            acc.store(leaf, g)
        else:
            old = self.get(leaf)
            self[leaf] = core.wrap(g.copy() if old is None else old.array + g)


def backward(loss, context):
    walk = Walk([loss._node], context.sink)
    walk.home = context
    walk.feed(loss._node, np.ones((), loss.array.dtype))
    walk.run()


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Linear(1, 1, bias=False).double() for _ in range(2))

    def forward(self, x, use_b=True):
        return (self.a(x).sum() + self.b(x).sum()) if use_b else self.a(x).sum()


def x():
    """1 on rank 0, 2 on rank 1: a mean of 1.5."""
    return core.wrap(np.full((1, 1), 1.0 + dist.get_rank()))


def values(context, model):
    return [context[p].item() if p in context else None for p in model.parameters()]


def grads(model):
    return [None if p.grad is None else p.grad.item() for p in model.parameters()]


@pytest.mark.parametrize("views", [False, True])
def test_gradients_go_to_the_context_and_grad_is_left_alone(views):
    def body():
        model = DDP(Two(), gradient_as_bucket_view=views)
        out, contexts = [], []
        for _ in range(3):
            contexts.append(Context())
            backward(model(x()), contexts[-1])
            out.append((values(contexts[-1], model), grads(model)))
            model(x()).backward()
        kept = [values(c, model) for c in contexts]
        return out, kept, grads(model)

    for out, kept, last in on_ranks(body):
        means = [1.5, 1.5]
        assert [v for v, _ in out] == [means] * 3 and kept == [means] * 3
        assert [g for _, g in out] == [[None, None], [1.5, 1.5], [3.0, 3.0]]
        assert last == [4.5, 4.5]


def test_gradients_of_one_context_add_up_and_are_averaged_together():
    def body():
        model, context = DDP(Two()), Context()
        plain = nn.Linear(1, 1, bias=False).double()
        for _ in range(2):
            backward(model(x()) + plain(x()).sum(), context)
        with model.no_sync():
            backward(model(x()), context)
        alone = values(context, model)
        backward(model(x()), context)
        return alone, values(context, model), context[plain.weight].item(), grads(model)

    (a0, both, plain0, none), (a1, both1, plain1, _) = on_ranks(body)
    assert a0 == [4.0, 4.0] and a1 == [5.0, 5.0] and both == both1 == [6.0, 6.0]
    assert (plain0, plain1) == (2.0, 4.0) and none == [None, None]


def test_unused_parameters_have_no_gradient_or_that_of_others():
    def body():
        model = DDP(Two(), find_unused_parameters=True)
        nowhere, here = Context(), Context()
        model.module.b.weight.grad = core.wrap(np.full((1, 1), 7.0))
        backward(model(x(), False), nowhere)
        backward(model(x(), dist.get_rank() == 0), here)
        return values(nowhere, model), values(here, model), grads(model)

    assert on_ranks(body) == [([1.5, None], [1.5, 0.5], [None, 7.0])] * 2


def test_hooks_and_joins():
    def hook(state, bucket):
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda f: bucket.buffer())

    def body():
        hooked, context = DDP(Two()), Context()
        hooked.register_comm_hook(None, hook)
        for _ in range(2):
            backward(hooked(x()), context)
        joined, seen = DDP(Two()), []
        with joined.join():
            for _ in range(1 + 2 * dist.get_rank()):
                other = Context()
                backward(joined(x()), other)
                seen.append(values(other, joined)[0])
        return values(context, hooked), seen, grads(joined)

    first, second = on_ranks(body)
    assert first[0] == second[0] == [9.0, 9.0]  # (3 + 1) + (3 + 2)
    assert first[1] == [1.5] and second[1] == [1.5, 1.0, 1.0]
    assert first[2] == second[2] == [None, None]


def test_a_backward_that_raises_gives_grad_back():
    def body():
        model, context = DDP(Two()), Context()
        backward(model(x()), context)
        model(x()).backward()
        own = model.module.a.weight.grad
        loss = model(x())
        handle = model.module.b.weight.register_hook(lambda g: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            backward(loss, Context())
        handle.remove()
        gc.collect()
        assert model.module.a.weight.grad is own and own.item() == 1.5
        backward(model(x()), context)
        return values(context, model)

    assert on_ranks(body) == [[3.0, 3.0]] * 2


def test_a_peer_that_dies_leaves_grad_as_it_was():
    def body():
        dist.init_process_group()
        model, context = DDP(Two()), Context()
        if dist.get_rank() == 1:
            backward(model(x()), context)
            raise ValueError("gone")
        with pytest.raises(PeerFailed):
            while True:  # it may hear of it when its own first one is about to end
                backward(model(x()), context)
        assert grads(model) == [None, None]

    with pytest.raises(LaunchError, match="simulated rank 1 failed") as caught:
        dist.simulate(body, 2)
    assert "rank 0" not in str(caught.value)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_tables_with_sparse_gradients_are_averaged_like_others(kind):
    def body():
        rank = dist.get_rank()
        few, plain = kind(6, 1, sparse=True), kind(6, 1)
        plain.load_state_dict(few.state_dict())
        out = []
        for model in (DDP(few), DDP(plain)):
            numbers = core.wrap(np.array([[rank, 2, 3 + rank]]))
            for _ in range(3):
                model.zero_grad()
                model(numbers).sum().backward()
                out.append(model.module.weight.grad.to_dense().reshape(-1).tolist())
            context = Context()
            backward(model(numbers).sum(), context)
            out.append(context[model.module.weight].to_dense().reshape(-1).tolist())
        return out

    first, second = on_ranks(body)
    assert first == second == [first[4]] * 8
