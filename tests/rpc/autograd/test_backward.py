"""Backward passes over workers: what they are given, what they do, how they fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import Tensor, autograd, context, nn, rpc
from disttrain.core.backward.checkpoint import checkpoint
from disttrain.errors import AutogradError, PeerFailed
from disttrain.rpc import autograd as dist_autograd
from support.workers import run_workers, simulate_workers


def on_first(body: Any, size: int = 2, seed: int = 0) -> Any:
    return simulate_workers(size, lambda me: body() if me == 0 else None, seed=seed)[0]


def leaf(*values: float) -> Tensor:
    return dt.tensor(values or (1.0, 2.0, 3.0), dtype=dt.float64, requires_grad=True)


def call(to: Any, fn: Any, *args: Any) -> Any:
    return rpc.rpc_sync(to, fn, args)


def add(a: Any, b: Any) -> Any:
    return a + b


def mul(a: Any, b: Any) -> Any:
    return a * b


def gradient(context_id: int, name: str) -> Tensor | None:
    return dist_autograd.get_gradients(context_id).get(KEPT[name])


KEPT: dict[str, Tensor] = {}  # leaves of the workers; all are in one process here


def keep(name: str, *values: float) -> None:
    KEPT[name] = leaf(*values)


def times_kept(name: str, x: Tensor) -> Tensor:
    return x * KEPT[name]


# --- what it is given -----------------------------------------------------------------------------


@pytest.mark.simulated
def test_wrong_arguments_are_named() -> None:
    def body() -> None:
        with dist_autograd.context() as c:
            x = leaf()
            for args in ((c, None), (None, None), (c, x), (c, [1.0])):
                with pytest.raises(TypeError, match="incompatible function arguments"):
                    dist_autograd.backward(*args)
            for roots, match in (
                ([], "No tensors provided for gradient computation"),
                ([dt.ones(3)], "requires_grad not set on"),
                ([x * 2], "is not a scalar, all roots need to be scalar"),
                ([leaf(1.0)], "does not have a valid gradient function"),
            ):
                with pytest.raises(AutogradError, match=match):
                    dist_autograd.backward(c, roots)
            with pytest.raises(ValueError, match="'smart' or 'fast' is needed"):
                dist_autograd.backward(c, [(x * 2).sum()], mode="quick")
        with pytest.raises(AutogradError, match="Could not find autograd context with id: 100"):
            dist_autograd.backward(100, [(x * 2).sum()])

    on_first(body)


@pytest.mark.simulated
def test_without_calls_it_writes_the_context_and_leaves_grad_alone() -> None:
    def body() -> None:
        x, y = leaf(), leaf()
        y.grad = dt.ones(3, dtype=dt.float64)
        with dist_autograd.context() as c:
            dist_autograd.backward(c, [(x * y).sum(), x.sum()])
            grads = dist_autograd.get_gradients(c)
            assert (grads[x] == y + 1).all() and (grads[y] == x).all() and len(grads) == 2
        assert x.grad is None and (y.grad == 1).all()

    on_first(body)


@pytest.mark.simulated
def test_a_sparse_leaf_has_a_sparse_gradient_under_its_own_name() -> None:
    def body() -> None:
        x = dt.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3), requires_grad=True)
        with dist_autograd.context() as c:
            total = call("worker1", mul, x.to_dense(), dt.ones(2, 3)).sum()
            dist_autograd.backward(c, [total])
            (grad,) = dist_autograd.get_gradients(c).values()
            assert dist_autograd.get_gradients(c)[x] is not None and grad.is_sparse
            assert grad.to_dense().tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
        node = x.to_dense().sum().grad_fn
        while node.next_functions:
            node = node.next_functions[0][0]
        assert node.variable is x

    on_first(body)


@pytest.mark.simulated
def test_roots_that_are_no_scalars_need_gradients() -> None:
    def body() -> None:
        x, g = leaf(), leaf(5.0, 6.0, 7.0).detach()
        with dist_autograd.context() as c:
            out = call("worker1", mul, x, x)
            dist_autograd.backward(c, [out, out.sum()], gradients=[g, None])
            assert (dist_autograd.get_gradients(c)[x] == 2 * x * (g + 1)).all()

    on_first(body)


# --- what it does ---------------------------------------------------------------------------------


@pytest.mark.simulated
def test_passes_add_up_and_the_graph_is_kept_only_where_asked() -> None:
    def body() -> None:
        x = leaf()
        with dist_autograd.context() as c:
            loss = call("worker1", mul, x, x).sum()
            for _ in range(3):
                dist_autograd.backward(c, [loss], retain_graph=True)
            dist_autograd.backward(c, [loss])
            assert (dist_autograd.get_gradients(c)[x] == 8 * x).all()
            with pytest.raises(AutogradError, match="already run and its saved tensors were freed"):
                dist_autograd.backward(c, [loss])
            assert (dist_autograd.get_gradients(c)[x] == 8 * x).all()

    on_first(body)


@pytest.mark.simulated
def test_the_graph_of_others_is_freed_and_kept_likewise() -> None:
    def body() -> None:
        x = leaf()
        with dist_autograd.context() as c:
            out = call("worker1", mul, x, x)
            dist_autograd.backward(c, [out.sum()])
            with pytest.raises(AutogradError, match=r"Error on Node 1: .*were freed") as caught:
                dist_autograd.backward(c, [out.sum()])
            assert "'worker1'" in str(caught.value)

    on_first(body)


@pytest.mark.simulated
def test_gradients_stay_where_the_leaves_are() -> None:
    def body() -> None:
        call("worker1", keep, "w", 2.0, 3.0, 4.0)
        x = leaf()
        with dist_autograd.context() as c:
            out = call("worker1", times_kept, "w", x)
            dist_autograd.backward(c, [out.sum()])
            assert list(dist_autograd.get_gradients(c)) == [x]
            assert (call("worker1", gradient, c, "w") == x).all()
        assert KEPT.pop("w").grad is None

    on_first(body)


def pair(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, x * 3


def shared(x: Tensor) -> list[Tensor]:
    y = x * 2
    return [y, y, y[1:]]


@pytest.mark.simulated
def test_one_of_several_results_is_used() -> None:
    def body() -> None:
        x = leaf()
        with dist_autograd.context() as c:
            a, _ = call("worker1", pair, x)
            dist_autograd.backward(c, [a.sum()])
            assert (dist_autograd.get_gradients(c)[x] == 2).all()
        with dist_autograd.context() as c:
            a, b, part = call("worker1", shared, x)
            dist_autograd.backward(c, [a.sum() + (b * 10).sum() + (part * 100).sum()])
            assert dist_autograd.get_gradients(c)[x].tolist() == [22.0, 222.0, 222.0]

    on_first(body)


@pytest.mark.simulated
def test_a_result_that_is_not_used_does_not_stop_it() -> None:
    def body() -> None:
        x, y = leaf(), leaf()
        with dist_autograd.context() as c:
            call("worker1", mul, x, y)
            unused = call("worker2", add, call("worker1", mul, x, y), y)
            used = call("worker2", add, x, x)
            dist_autograd.backward(c, [(x * y).sum() + used.sum()], retain_graph=True)
            grads = dist_autograd.get_gradients(c)
            assert (grads[x] == y + 2).all() and (grads[y] == x).all()
            dist_autograd.backward(c, [unused.sum()])
            assert (dist_autograd.get_gradients(c)[x] == y * 2 + 2).all()

    for seed in range(5):
        on_first(body, 3, seed)


@pytest.mark.simulated
def test_fast_mode_says_which_worker_has_unused_results() -> None:
    def body() -> None:
        x = leaf()
        with dist_autograd.context() as c:
            out = call("worker1", mul, x, x)
            dist_autograd.backward(c, [out.sum()], retain_graph=True, mode="fast")
            assert (dist_autograd.get_gradients(c)[x] == 2 * x).all()
            call("worker1", mul, x, x)
            with pytest.raises(AutogradError, match="mode='fast' supposes that the result of"):
                dist_autograd.backward(c, [out.sum()], mode="fast")

    on_first(body)


def ping(x: Tensor, hops: int) -> Tensor:
    if not hops:
        return x * x
    to = 1 - rpc.get_worker_info().id
    return call(f"worker{to}", ping, x * 2, hops - 1) + x


def ping_here(x: Tensor, hops: int) -> Tensor:
    return ping_here(x * 2, hops - 1) + x if hops else x * x


@pytest.mark.simulated
def test_calls_may_go_back_and_forth() -> None:
    def body() -> None:
        x = leaf()
        ping_here(x, 7).sum().backward()
        with dist_autograd.context() as c:
            dist_autograd.backward(c, [call("worker1", ping, x, 6).sum() * 0 + ping(x, 7).sum()])
            assert (dist_autograd.get_gradients(c)[x] - x.grad).abs().max() < 1e-9

    for seed in range(3):
        on_first(body, 2, seed)


@pytest.mark.simulated
def test_a_long_chain_of_calls() -> None:
    def body() -> None:
        x = y = leaf()
        with dist_autograd.context() as c:
            for i in range(60):
                y = call(f"worker{1 + i % 2}", add, y, x)
            dist_autograd.backward(c, [y.sum()])
            assert (dist_autograd.get_gradients(c)[x] == 61).all()

    on_first(body, 3)


def deep(x: Tensor) -> Tensor:
    for _ in range(1200):
        x = x * 1.0
    return x


def deep_elsewhere(x: Tensor) -> Tensor:
    return call("worker2", deep, call("worker0", mul, deep(x), 2.0))


@pytest.mark.simulated
def test_what_an_answer_leads_to_is_asked_for_where_its_graph_is_large() -> None:
    def body() -> None:
        x = leaf()
        with dist_autograd.context() as c:
            call("worker2", deep, x)
            out = call("worker1", deep_elsewhere, x)
            dist_autograd.backward(c, [out.sum()])
            assert (dist_autograd.get_gradients(c)[x] == 2).all()

    for seed in range(3):
        on_first(body, 3, seed)


def written(x: Tensor) -> Tensor:
    x.mul_(3)
    x[:-1].add_(x[1:].clone())
    return x


@pytest.mark.simulated
def test_tensors_may_be_written_to_before_and_after_they_are_sent() -> None:
    def work(f: Any, x: Tensor) -> Tensor:
        y = x * 1
        y[1:].mul_(2)
        out = f(y.clone() if f is written else y)
        y.mul_(7)
        return (out * y).sum() + f(y[:2].clone().repeat(2)).sum()

    def body() -> None:
        x = leaf()
        work(written, x).backward()
        with dist_autograd.context() as c:
            dist_autograd.backward(c, [work(lambda t: call("worker1", written, t), x)])
            assert (dist_autograd.get_gradients(c)[x] - x.grad).abs().max() < 1e-12

    on_first(body)


@pytest.mark.simulated
def test_hooks_run_on_tensors_and_nodes_of_all_workers() -> None:
    seen: list[Any] = []

    def hooked(x: Tensor) -> Tensor:
        x.register_hook(lambda g: g * 10)
        out = x * 2
        out.grad_fn.register_hook(lambda ins, outs: seen.append(rpc.get_worker_info().id))
        return out

    global HOOKED
    HOOKED = hooked

    def body() -> None:
        x = leaf()
        x.register_hook(lambda g: g + 1)
        with dist_autograd.context() as c:
            out = call("worker1", _hooked, x)
            out.retain_grad()
            out.register_hook(lambda g: g * 3)
            dist_autograd.backward(c, [out.sum()])
            assert (dist_autograd.get_gradients(c)[x] == 61).all()
            assert (out.grad == 3).all()
        assert seen == [1]

    on_first(body)


def _hooked(x: Tensor) -> Tensor:
    return HOOKED(x)


@pytest.mark.simulated
def test_hooks_of_leaves_that_look_at_grad_see_the_context() -> None:
    def body() -> None:
        x, found = leaf(), []
        x.register_post_accumulate_grad_hook(lambda t: found.append(t.grad.clone()))
        x.grad = dt.zeros(3, dtype=dt.float64)
        with dist_autograd.context() as c:
            out = call("worker1", mul, x, x)
            dist_autograd.backward(c, [out.sum()], retain_graph=True)
            dist_autograd.backward(c, [out.sum()])
            assert [(g / x)[0].item() for g in found] == [2.0, 4.0]
            assert (dist_autograd.get_gradients(c)[x] == 4 * x).all()
        assert (x.grad == 0).all()

    on_first(body)


@pytest.mark.simulated
def test_sparse_gradients_of_tables_add_up() -> None:
    def body() -> None:
        table = nn.Embedding(10, 3, sparse=True)
        rows = dt.tensor([1, 4, 1])
        for _ in range(2):
            (table(rows) * 2).sum().backward()
        want, table.weight.grad = table.weight.grad, None
        with dist_autograd.context() as c:
            loss = call("worker1", mul, table(rows), 2.0).sum()
            dist_autograd.backward(c, [loss], retain_graph=True)
            dist_autograd.backward(c, [loss])
            found = dist_autograd.get_gradients(c)[table.weight]
            assert found.is_sparse and want.is_sparse
            assert np.array_equal(found.to_dense().numpy(), want.to_dense().numpy())
        assert table.weight.grad is None

    on_first(body)


def scaled(parameter: Tensor, x: Tensor) -> Tensor:
    return parameter * x


@pytest.mark.simulated
def test_parameters_and_leaves_are_arguments() -> None:
    def body() -> None:
        w, x = nn.Parameter(leaf().detach().clone()), leaf()
        with dist_autograd.context() as c:
            out = call("worker1", scaled, w, x)
            dist_autograd.backward(c, [out.sum()])
            grads = dist_autograd.get_gradients(c)
            assert (grads[x] == w).all() and (grads[w] == x).all()

    on_first(body)


def checkpointed(name: str, reentrant: bool, x: Tensor) -> Tensor:
    return checkpoint(lambda t: (t * KEPT[name]).sin(), x, use_reentrant=reentrant)


@pytest.mark.simulated
@pytest.mark.parametrize("reentrant", [False, True])
def test_activations_may_be_recomputed(reentrant: bool) -> None:
    def body() -> None:
        keep("w", 2.0, 3.0, 4.0)
        keep("v", 5.0, 6.0, 7.0)
        x, w, v = leaf(), KEPT["w"], KEPT["v"]
        ((x * w).sin() * v).sin().sum().backward()
        with dist_autograd.context() as c:
            out = call("worker1", checkpointed, "w", reentrant, x)
            dist_autograd.backward(c, [checkpointed("v", reentrant, out).sum()])
            grads = dist_autograd.get_gradients(c)
            assert (grads[x] - x.grad).abs().max() < 1e-12
            assert (grads[v] - v.grad).abs().max() < 1e-12
            assert (call("worker1", gradient, c, "w") - w.grad).abs().max() < 1e-12

    on_first(body)
    KEPT.clear()


def remote_checkpointed(x: Tensor) -> Tensor:
    return checkpoint(lambda t: call("worker1", times_kept, "w", t), x, use_reentrant=True)


@pytest.mark.simulated
def test_a_call_may_be_made_again_when_activations_are_recomputed() -> None:
    def body() -> None:
        keep("w", 2.0, 3.0, 4.0)
        x = leaf()
        with dist_autograd.context() as c:
            dist_autograd.backward(c, [remote_checkpointed(x * 2).sum()])
            assert (call("worker1", gradient, c, "w") == x * 2).all()
        KEPT.clear()

    on_first(body)


def compiled_step(x: Tensor) -> Tensor:
    return dt.compile(lambda t: (t * t).sin())(x)


@pytest.mark.simulated
def test_pieces_may_be_compiled() -> None:
    def body() -> None:
        x = leaf()
        (x * x).sin().sum().backward()
        with dist_autograd.context() as c:
            dist_autograd.backward(c, [call("worker1", compiled_step, x).sum()])
            assert (dist_autograd.get_gradients(c)[x] - x.grad).abs().max() < 1e-12

    on_first(body)


@rpc.functions.async_execution
def answered_later(x: Tensor) -> Any:
    return rpc.rpc_async("worker2", mul, (x * 2, x)).then(lambda f: f.wait() + x)


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(3))
def test_references_and_functions_that_answer_later_are_in_the_graph(seed: int) -> None:
    def body() -> None:
        x = leaf()
        with dist_autograd.context() as c:
            out = call("worker1", answered_later, x)
            there = rpc.remote("worker2", mul, (out, x))
            dist_autograd.backward(c, [there.to_here().sum()])
            assert (dist_autograd.get_gradients(c)[x] == 6 * x * x + 2 * x).all()

    on_first(body, 3, seed)


# --- recorded passes ------------------------------------------------------------------------------


def cube(x: Tensor) -> Tensor:
    return x * x * x


@pytest.mark.simulated
def test_second_derivatives_go_through_workers() -> None:
    def body() -> None:
        x = leaf()
        with dist_autograd.context() as c:
            out = call("worker1", cube, x)
            dist_autograd.backward(c, [out.sum()], create_graph=True)
            first = dist_autograd.get_gradients(c)[x]
            assert (first == 3 * x * x).all() and first.requires_grad
        with dist_autograd.context() as c:
            out = call("worker1", cube, x)
            dist_autograd.backward(c, [out.sum()], create_graph=True)
            first = dist_autograd.get_gradients(c)[x]
            dist_autograd.backward(c, [(first * first).sum()])
            both = dist_autograd.get_gradients(c)[x]
            want = 3 * x * x + 2 * (3 * x * x) * (6 * x)
            assert (both.detach() - want.detach()).abs().max() < 1e-9

    for seed in range(3):
        on_first(body, 2, seed)


# --- how it fails ---------------------------------------------------------------------------------


class Fails(autograd.Function):
    failing = True

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        if Fails.failing:
            raise ValueError("simulated error")
        return g


def failing(x: Tensor) -> Tensor:
    return Fails.apply(x) * 2


def failing_behind(x: Tensor) -> Tensor:
    return call("worker2", failing, x) + 1


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(8))
def test_an_error_of_any_worker_is_raised_and_the_context_goes_on(seed: int) -> None:
    def body() -> None:
        x, y = leaf(), leaf()
        with dist_autograd.context() as c:
            out = call("worker1", failing_behind, x * y) + call("worker2", mul, x, y)
            Fails.failing = True
            for _ in range(3):
                with pytest.raises(AutogradError, match="Error on Node 2: simulated error") as e:
                    dist_autograd.backward(c, [out.sum()], retain_graph=True)
                assert "ValueError on worker 'worker2'" in str(e.value)
            Fails.failing = False
            assert dist_autograd.get_gradients(c) == {}
            dist_autograd.backward(c, [out.sum()], retain_graph=True)
            assert (dist_autograd.get_gradients(c)[x] == 3 * y).all()
            assert dist_autograd._get_debug_info()["num_current_backward_passes"] == "0"

    on_first(body, 3, seed)


@pytest.mark.simulated
def test_an_error_of_this_worker_is_raised_as_it_is_where_no_other_had_a_part() -> None:
    def body() -> None:
        with dist_autograd.context() as c:
            Fails.failing = True
            with pytest.raises(ValueError, match="simulated error"):
                dist_autograd.backward(c, [Fails.apply(leaf()).sum()])
            x = Fails.apply(leaf())
            out = call("worker1", mul, x, x)
            with pytest.raises(AutogradError, match="Error on Node 0: simulated error") as caught:
                dist_autograd.backward(c, [out.sum()])
            assert isinstance(caught.value.__cause__, ValueError)

    on_first(body)


@pytest.mark.simulated
def test_a_local_backward_goes_on_at_other_workers() -> None:
    def body() -> None:
        keep("w", 2.0, 3.0, 4.0)
        x, y = leaf(), leaf()
        with dist_autograd.context() as c:
            h = x * 2
            out = call("worker1", mul, h, y)
            more = call("worker1", times_kept, "w", out)
            (more * y).sum().backward()
            assert (y.grad == more).all() and x.grad is None
            grads = dist_autograd.get_gradients(c)
            w = KEPT["w"]
            assert (grads[x] == 2 * w * y * y).all() and (grads[y] == w * y * h).all()
            assert (call("worker1", gradient, c, "w") == out * y).all()

    on_first(body)
    del KEPT["w"]


def end_now() -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


class EndsProcess(autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        end_now()
        return g


def ends_in_backward(x: Tensor) -> Tensor:
    return EndsProcess.apply(x)


def ends_behind(x: Tensor) -> Tensor:
    return call("worker2", ends_in_backward, x)


@pytest.mark.parametrize("through", [ends_in_backward, ends_behind])
def test_a_worker_that_dies_is_named(through: Any, tmp_path: Any) -> None:
    def body(me: int) -> Any:
        if me:
            return None
        x = leaf()
        with dist_autograd.context() as c:
            out = call("worker2" if through is ends_in_backward else "worker1", through, x)
            other = call("worker1", mul, x, x)
            since = context.now()
            with pytest.raises(PeerFailed, match="rank 2"):
                dist_autograd.backward(c, [out.sum() + other.sum()], retain_graph=True)
            assert context.now() - since < 10
            dist_autograd.backward(c, [other.sum()])
            assert (dist_autograd.get_gradients(c)[x] == 2 * x).all()
        return None

    with pytest.raises(Exception, match="rank 2"):
        run_workers(3, body, tmp_path)


# --- what is left of a pass that failed -----------------------------------------------------------


def fails_behind_kept(x: Tensor, name: str) -> Tensor:
    return failing(x * KEPT[name])


def kept_gradients(context_id: int) -> dict[str, list[float]]:
    found = dist_autograd.get_gradients(context_id)
    return {n: found[x].tolist() for n, x in sorted(KEPT.items()) if x in found}


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(6))
def test_no_worker_keeps_gradients_of_a_pass_that_failed_on_another(seed: int) -> None:
    """Those that were done with their part before it failed neither; earlier passes stay."""

    def body() -> list:
        for w in range(4):
            call(f"worker{w}", keep, f"at {w}")
        with dist_autograd.context() as c:

            def all_gradients() -> list:
                return [call(f"worker{w}", kept_gradients, c) for w in range(4)]

            for w in (2, 3):  # (others have no part in the context yet)
                call(f"worker{w}", times_kept, f"at {w}", leaf())
            seen = []
            for fails in (True, False, True):
                y = KEPT["at 0"] * 2
                y = call("worker1", fails_behind_kept if fails else mul, y, "at 1" if fails else y)
                for w in (2, 3):
                    y = call(f"worker{w}", times_kept, f"at {w}", y)
                last = (y * KEPT["at 0"].detach().requires_grad_()).sum()
                if fails:
                    with pytest.raises(AutogradError, match="Error on Node 1"):
                        dist_autograd.backward(c, [last])
                else:
                    dist_autograd.backward(c, [last])
                seen.append(all_gradients())
            return seen

    KEPT.clear()
    Fails.failing = True
    before, between, after = on_first(body, size=4, seed=seed)
    assert before == [{}] * 4
    assert between == after
    assert set(between[2]) == {"at 2"}
    KEPT.clear()


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(6))
def test_leaves_with_hooks_may_be_in_the_contexts_of_several_workers(seed: int) -> None:
    """Both contexts lend their gradients to ``.grad`` for the hooks; none keeps the other's."""
    seen: list[float] = []

    def body(me: int) -> Any:
        if me == 2:
            return None
        got = []
        for _ in range(4):
            with dist_autograd.context() as c:
                y = call("worker2", times_kept, "first", dt.ones(3, dtype=dt.float64) * (me + 1))
                z = call("worker2", times_kept, "hooked", y * 1)  # long before the pass ends there
                dist_autograd.backward(c, [z.sum()])
                got.append(call("worker2", kept_gradients, c)["hooked"])
        return got

    KEPT.clear()
    keep("first", 3.0)
    keep("hooked", 1.0)
    KEPT["hooked"].register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    results = simulate_workers(3, body, seed=seed)
    assert KEPT["hooked"].grad is None
    assert results[:2] == [[[9.0]] * 4, [[18.0]] * 4]
    assert sorted(seen) == [9.0] * 4 + [18.0] * 4
    KEPT.clear()
