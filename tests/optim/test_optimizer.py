"""The step of every optimizer: gradients, closures, hooks, groups, how it is seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain import optim
from disttrain.core import no_grad, wrap
from disttrain.optim.optimizer import single

SHAPES = [(4, 3), (5,), (), (2, 1, 6)]


def parameters(dtype="f8", seed=0):
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(rng.standard_normal(s), dtype) for s in SHAPES]
    return [wrap(a).requires_grad_() for a in arrays]


def gradients(step, dtype="f8"):
    rng = np.random.default_rng(100 + step)
    return [np.asarray(rng.standard_normal(s), dtype) for s in SHAPES]


def train(opt, params, steps, dtype="f8", start=0):
    for k in range(start, start + steps):
        for p, g in zip(params, gradients(k, dtype)):
            p.grad = wrap(g)
        opt.step()


def test_groups_have_their_own_numbers():
    p, q = parameters()[:2]
    opt = optim.SGD([{"params": [p], "lr": 0.5}, {"params": q}], lr=0.1)
    before = p.array.copy(), q.array.copy()
    train(opt, [p, q], 1)
    g = gradients(0)
    np.testing.assert_allclose(p.array, before[0] - 0.5 * g[0])
    np.testing.assert_allclose(q.array, before[1] - 0.1 * g[1])
    assert opt.state_dict()["param_groups"][1]["params"] == [1]
    assert "lr: 0.5" in repr(opt) and "Parameter Group 1" in repr(opt)


def test_parameters_without_gradient_are_left_alone():
    p, q = parameters()[:2]
    before = q.array.copy()
    opt = optim.AdamW([p, q], lr=0.1)
    train(opt, [p], 2)
    np.testing.assert_array_equal(q.array, before)
    assert list(opt.state_dict()["state"]) == [0]


def test_zero_grad():
    (p,) = parameters()[:1]
    opt = optim.SGD([p], lr=0.1)
    p.grad = wrap(np.ones(p.shape))
    held = p.grad
    opt.zero_grad(set_to_none=False)
    assert p.grad is held and not held.array.any()
    opt.zero_grad()
    assert p.grad is None


def test_a_closure_is_computed_with_gradients_and_its_value_returned():
    (p,) = parameters()[:1]
    opt = optim.SGD([p], lr=0.1)
    seen = []

    def closure():
        loss = (p * p).sum()
        seen.append(loss.requires_grad)
        loss.backward()
        return loss

    before = p.array.copy()
    with no_grad():
        loss = opt.step(closure)
    assert seen == [True] and math.isclose(loss.item(), (before**2).sum())
    np.testing.assert_allclose(p.array, 0.8 * before)


def test_hooks_run_around_the_step():
    (p,) = parameters()[:1]
    opt, seen = optim.Adam([p]), []
    opt.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    handle = opt.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))
    train(opt, [p], 1)
    handle.remove()
    train(opt, [p], 1)
    assert seen == ["before", "after", "before"]


def test_an_optimizer_of_ones_own():
    class Plain(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    with no_grad():
                        p.add_(p.grad, alpha=-group["lr"])
                    self.state[p]["seen"] = self.state[p].get("seen", 0) + 1

    (p,) = parameters()[:1]
    before, seen = p.array.copy(), []
    opt = Plain([p], 0.5)
    opt.register_step_post_hook(lambda *a: seen.append(1))
    train(opt, [p], 1)
    np.testing.assert_allclose(p.array, before - 0.5 * gradients(0)[0])
    assert seen == [1] and opt.state_dict()["state"] == {0: {"seen": 1}}


def test_a_step_counts_as_a_write_that_backward_notices():
    (p,) = parameters()[:1]
    loss = (p * p).sum()
    p.grad = wrap(np.ones(p.shape))
    optim.SGD([p], lr=0.1).step()
    with pytest.raises(RuntimeError, match=r"in place|in-place|modified"):
        loss.backward()


def test_an_observed_step_goes_through_the_gate():
    """An interpreter on the stack sees one primitive per parameter; the numbers are the same."""
    from disttrain import context

    class Watch:
        dynamic = True

        def __init__(self):
            self.names = []

        def process(self, prim, args, params, proceed):
            self.names.append(prim.name)
            return proceed(prim, args, params)

    results = []
    for observed in (False, True):
        params = parameters()[:2]
        opt, watch = optim.AdamW(params, lr=0.1), Watch()
        for p, g in zip(params, gradients(0)):
            p.grad = wrap(g)
        if observed:
            with context.interpreter(watch):
                opt.step()
            assert watch.names == ["adam_step", "adam_step"]
        else:
            opt.step()
        results.append([p.array for p in params])
    for a, b in zip(*results):
        np.testing.assert_array_equal(a, b)


def test_meta_parameters_step_without_data():
    from disttrain.backends.null import NullArray

    p = wrap(NullArray((10**6, 10**6), np.float32)).requires_grad_()
    p.grad = wrap(NullArray((10**6, 10**6), np.float32))
    opt = optim.AdamW([p])
    opt.step()
    assert opt.state[p]["exp_avg"].is_meta


def test_hooks_run_once_however_often_step_is_inherited():
    class Louder(optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    (p,) = parameters()[:1]
    opt, seen = Louder([p], lr=0.1), []
    opt.register_step_post_hook(lambda *args: seen.append(1))
    train(opt, [p], 2)
    assert seen == [1, 1] and opt.stepped


@pytest.mark.parametrize("answer", [((), {}, 1), [(), {}], ((),), 3])
def test_a_pre_hook_gives_nothing_or_arguments_and_keywords(answer):
    (p,) = parameters()[:1]
    opt = optim.SGD([p], lr=0.1)
    opt.register_step_pre_hook(lambda *args: answer)
    with pytest.raises(ValueError, match="must return None or a tuple of"):
        opt.step()


def test_a_recorded_step_leaves_out_what_has_no_gradient():
    p, q = (dt.ones(1, requires_grad=True) for _ in range(2))
    given, idle = p * 1, q * 1
    opt = optim.SGD([given, idle], lr=0.5, differentiable=True)
    given.grad = dt.full((1,), 2.0)
    opt.step()
    assert given.tolist() == [0.0] and idle.tolist() == [1.0]
    (given * 3).sum().backward()
    assert p.grad.tolist() == [3.0] and q.grad is None


def test_after_a_step_that_raised_hooks_run_again():
    (p,) = parameters()[:1]
    opt, seen = optim.SGD([p], lr=0.1), []
    opt.register_step_pre_hook(lambda *args: seen.append(1))
    with pytest.raises(ZeroDivisionError):
        opt.step(lambda: 1 / 0)
    train(opt, [p], 1)
    assert seen == [1, 1]


def test_zeroed_gradients_are_cut_off_from_their_graph():
    (p,) = parameters()[:1]
    opt = optim.SGD([p], lr=0.1)
    (p**3).sum().backward(create_graph=True)
    held = p.grad
    assert held.requires_grad
    opt.zero_grad(set_to_none=False)
    assert (
        not p.grad.requires_grad
        and not p.grad.array.any()
        and np.shares_memory(p.grad.array, held.array)
    )


def test_what_steps_without_a_rule_says_what_it_needs():
    (p,) = parameters()[:1]
    p.grad = wrap(np.ones(p.shape))
    with pytest.raises(
        NotImplementedError, match=r"Optimizer: an optimizer defines choose\(group\)"
    ):
        optim.Optimizer([p], {}).step()


def test_sparse_gradients_are_refused_where_they_have_no_meaning():
    p = dt.ones(3, requires_grad=True)
    p.grad = dt.sparse_coo_tensor([[1]], [2.0], (3,))
    with pytest.raises(TypeError, match="RMSprop does not support sparse gradients"):
        optim.RMSprop([p]).step()


def test_first_values_of_state():
    p = dt.ones(2, 3, dtype=dt.float64).T.requires_grad_()
    opt = optim.NAdam([p])
    group = opt.param_groups[0]
    zeros = opt.initial("exp_avg", p, group)
    assert zeros.dtype is dt.float64 and zeros.stride() == p.stride() and not zeros.array.any()
    assert opt.initial("step", p, group).item() == 0.0
    assert opt.initial("mu_product", p, group).item() == 1.0
    one = single(2.5)
    assert one.dtype is dt.float32 and one.shape == () and one.item() == 2.5


def test_hyperparameters_become_plain_numbers():
    p = dt.ones(1, requires_grad=True)
    opt = optim.Adam([p], lr=dt.tensor(0.25), weight_decay=1)
    _, names, hyper = opt.plan(opt.param_groups[0])
    assert names == ("exp_avg", "exp_avg_sq", "step") and hyper["lr"] == 0.25
    assert type(hyper["lr"]) is type(hyper["weight_decay"]) is float and hyper["maximize"] is False


def test_the_text_shows_groups_in_order():
    p, q = parameters()[:2]
    text = repr(optim.SGD([{"params": p, "lr": 0.5}, {"params": q}], lr=0.1))
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "SGD (" and lines[-1] == ")"
    assert lines.index("lr: 0.5") < lines.index("Parameter Group 1") < lines.index("lr: 0.1")
    assert not any(line.startswith("params") for line in lines)


def test_what_wraps_an_optimizer_may_pass_for_one():
    """As libraries do that prepare a program's optimizer: without a constructor of its base."""

    class Wrapper(optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner

        def step(self, closure=None):
            self.inner.step(closure)

    p = dt.nn.Parameter(dt.ones(1))
    wrapped = Wrapper(optim.SGD([p], lr=0.5))
    p.grad = dt.ones(1)
    seen = []
    with wrapped.register_step_post_hook(lambda *args: seen.append(1)):
        wrapped.step()
    wrapped.step()
    assert p.item() == 0.0 and seen == [1] and wrapped.stepped


def test_a_rate_of_none_is_for_the_program_to_read():
    class Own(optim.Optimizer):
        def __init__(self, params, lr=None):
            super().__init__(params, {"lr": lr})

    assert Own([dt.nn.Parameter(dt.ones(1))]).param_groups[0]["lr"] is None
