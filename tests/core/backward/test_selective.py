"""Results that a policy keeps are not computed again, and gradients are those without it."""

from __future__ import annotations

import functools

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.autograd import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from disttrain.errors import AutogradError
from disttrain.profiler import profile

NET = (nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4), nn.Softmax(-1))


def grads(contexts, net, x, fn=None):
    """The gradient of x, and how often forward's primitives ran in all."""
    x = x.clone().requires_grad_()
    with profile() as seen:
        out = checkpoint(fn or net, x, use_reentrant=False, context_fn=contexts)
        out.square().sum().backward()
    times = {event.key: event.count for event in seen.key_averages()}
    return x.grad, times


@pytest.fixture
def net():
    dt.manual_seed(0)
    return nn.Sequential(*NET)


def keep(*names):
    return functools.partial(create_selective_checkpoint_contexts, list(names))


def test_what_is_kept_does_not_run_again(net):
    x = dt.rand(3, 4)
    want, all_again = grads(keep(), net, x)
    got, few = grads(keep("linear", dt.softmax), net, x)
    assert dt.equal(got, want)
    assert all_again["aten::linear"] > few["aten::linear"] == 2
    assert few["aten::softmax"] == 1


def test_a_policy_sees_each_operation_once_with_its_result(net):
    seen = []

    def policy(ctx, op, *args, **params):
        seen.append((repr(op), ctx.is_recompute, ctx.op_output.shape))
        return CheckpointPolicy.PREFER_SAVE if len(seen) == 1 else CheckpointPolicy.MUST_RECOMPUTE

    x = dt.rand(3, 4)
    got, times = grads(functools.partial(create_selective_checkpoint_contexts, policy), net, x)
    assert dt.equal(got, grads(keep(), net, x)[0])
    assert seen[0] == ("addmm/linear/matmul/mm", False, (3, 8)) and len(seen) == 4
    assert times["aten::linear"] == 3


@pytest.mark.parametrize("rate", [CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.MUST_SAVE])
def test_policies_with_random_numbers_and_compiled(net, rate):
    policy = lambda ctx, op, *args, **params: rate
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    noisy = nn.Sequential(*net, nn.Dropout(0.5))

    def step(x):
        out = checkpoint(noisy, x, use_reentrant=False, context_fn=contexts)
        out.square().sum().backward()
        return out.detach()

    x = dt.rand(3, 4)
    results = []
    for run in (step, dt.compile(step)):
        for _ in range(2):
            leaf = x.clone().requires_grad_()
            dt.manual_seed(1)
            results.append((run(leaf), leaf.grad))
    dt.manual_seed(1)
    leaf = x.clone().requires_grad_()
    noisy(leaf).square().sum().backward()
    for out, grad in results:
        assert dt.equal(grad, leaf.grad) and dt.equal(out, results[0][0])


def test_what_was_kept_must_not_change_and_is_given_once(net):
    def writes(x):
        y = x @ x
        z = y.sin()
        y.add_(1)
        return z.exp()

    x = dt.rand(3, 3)
    with pytest.raises(AutogradError, match="has been mutated"):
        grads(keep("matmul"), None, x, writes)
    leaf = x.clone().requires_grad_()
    out = checkpoint(lambda t: (t @ t).exp(), leaf, use_reentrant=False, context_fn=keep("mm"))
    out.sum().backward(retain_graph=True)
    with pytest.raises(AutogradError, match="backward an extra time"):
        out.sum().backward()


def test_what_is_no_policy():
    with pytest.raises(TypeError, match="a function or a list"):
        create_selective_checkpoint_contexts("mm")
    with pytest.raises(AutogradError, match="the policy gave 'save'"):
        policy = lambda ctx, op, *args, **params: "save"
        wrong = functools.partial(create_selective_checkpoint_contexts, policy)
        grads(wrong, None, dt.rand(2), dt.sin)
