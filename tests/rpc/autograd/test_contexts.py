"""Contexts: ids, one per thread, what travels, what is left when they are over."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

import disttrain as dt
from disttrain import Tensor, context, rpc
from disttrain.errors import AutogradError, CommError
from disttrain.rpc import autograd
from support.workers import run_workers, simulate_workers


def on_first(body: Any, size: int = 2, seed: int = 0) -> Any:
    """What ``body()`` gives on worker 0 of simulated ones."""
    return simulate_workers(size, lambda me: body() if me == 0 else None, seed=seed)[0]


def ones(requires_grad: bool = True) -> Tensor:
    return dt.ones(2, 3, dtype=dt.float64, requires_grad=requires_grad)


def add(a: Any, b: Any) -> Any:
    return a + b


def passed_on(a: Tensor, b: Tensor) -> Tensor:
    return rpc.rpc_sync("worker2", add, (a, b))


def here(context_id: int) -> bool:
    try:
        return autograd._is_valid_context(context_id)
    except AutogradError:
        return False


def sizes(context_id: int) -> tuple[int, int, set[int]]:
    found = autograd._retrieve_context(context_id)
    return len(found._send_functions()), len(found._recv_functions()), found._known_worker_ids()


def wait_until_gone(context_id: int, workers: list[int]) -> None:
    for w in workers:
        for _ in range(2000):
            if not rpc.rpc_sync(w, here, (context_id,)):
                break
            context.sleep(0.005)
        else:
            raise AssertionError(f"worker {w} still has context {context_id}")


@pytest.mark.simulated
def test_an_id_has_its_worker_in_the_upper_bits_and_is_used_once() -> None:
    def body(me: int) -> Any:
        ids = []
        for _ in range(5):
            with autograd.context() as context_id:
                assert autograd._current_context()._context_id() == context_id
                assert autograd._retrieve_context(context_id)._context_id() == context_id
                ids.append(context_id)
        return ids, autograd._get_max_id()

    for me, (ids, largest) in enumerate(simulate_workers(2, body)):
        assert [i >> 48 for i in ids] == [me] * 5 and len(set(ids)) == 5
        assert largest == (me << 48) + (1 << 48) - 1


@pytest.mark.simulated
def test_what_is_not_there_is_an_error_that_says_so() -> None:
    def body() -> None:
        with pytest.raises(AutogradError, match="Could not find autograd context with id: 100"):
            autograd._retrieve_context(100)
        with pytest.raises(AutogradError, match="doesn't have a valid autograd context"):
            autograd._current_context()
        with pytest.raises(AutogradError, match="Could not find autograd context with id: 7"):
            autograd.get_gradients(7)
        with autograd.context() as context_id:
            with pytest.raises(AutogradError, match="Already have an autograd context id for"):
                with autograd.context():
                    pass
            assert here(context_id)
        with pytest.raises(AutogradError, match="it was released"):
            autograd.get_gradients(context_id)

    on_first(body)
    with pytest.raises(CommError, match="RPC has not been initialized"):
        with autograd.context():
            pass


@pytest.mark.simulated
def test_a_call_leaves_a_send_and_a_receive_node_on_both_sides() -> None:
    def body() -> None:
        a, b = ones(), ones()
        with autograd.context() as context_id:
            out = rpc.rpc_sync("worker1", add, (a, b))
            mine = autograd._current_context()
            (send,) = mine._send_functions().values()
            (recv,) = mine._recv_functions().values()
            assert [fn.variable for fn, _ in send.next_functions] == [a, b]
            assert out.grad_fn is recv
            assert recv.name() == "torch::distributed::autograd::RecvRpcBackward"
            assert send.name() == "torch::distributed::autograd::SendRpcBackward"
            assert mine._known_worker_ids() == {1}
            assert rpc.rpc_sync("worker1", sizes, (context_id,)) == (1, 1, set())

    on_first(body)


@pytest.mark.simulated
def test_a_call_to_oneself_has_both_pairs_here() -> None:
    def body() -> None:
        with autograd.context() as context_id:
            rpc.rpc_sync("worker0", add, (ones(), ones()))
            assert sizes(context_id) == (2, 2, set())

    on_first(body)


@pytest.mark.simulated
@pytest.mark.parametrize("requires_grad", [False, True])
def test_workers_are_known_even_where_nothing_requires_grad(requires_grad: bool) -> None:
    def body() -> None:
        with autograd.context() as context_id:
            rpc.rpc_sync("worker1", add, (ones(requires_grad), 1))
            rpc.rpc_sync("worker2", add, (1, 1))
            assert autograd._current_context()._known_worker_ids() == {1, 2}
            assert sizes(context_id)[0] == requires_grad
            assert rpc.rpc_sync("worker2", here, (context_id,))
        wait_until_gone(context_id, [1, 2])

    on_first(body, 3)


@pytest.mark.simulated
def test_integers_and_tensors_without_grad_have_no_place_in_the_graph() -> None:
    def body() -> None:
        with autograd.context() as context_id:
            x, frozen, number = ones(), ones(False), dt.tensor([1, 2, 3])
            a, b, c = rpc.rpc_sync("worker1", list, ((x, frozen, number),))
            assert a.requires_grad and not b.requires_grad and not c.requires_grad
            (send,) = autograd._current_context()._send_functions().values()
            assert len(send.next_functions) == 1
            autograd.backward(context_id, [a.sum()])
            assert list(autograd.get_gradients(context_id)) == [x]

    on_first(body)


@pytest.mark.simulated
def test_nothing_is_recorded_outside_of_contexts_nor_under_no_grad() -> None:
    def body() -> None:
        x = ones()
        rpc.rpc_sync("worker1", add, (x, x))
        with autograd.context() as context_id:
            with dt.no_grad():
                out = rpc.rpc_sync("worker1", add, (x, x))
            assert out.grad_fn is None
            assert sizes(context_id) == (0, 0, {1})

    on_first(body)


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(6))
def test_a_context_is_released_on_workers_that_others_called(seed: int) -> None:
    def body() -> Any:
        with autograd.context() as context_id:
            out = rpc.rpc_sync("worker1", passed_on, (ones(), ones()))
            assert rpc.rpc_sync("worker2", here, (context_id,))
            autograd.backward(context_id, [out.sum()])
        wait_until_gone(context_id, [0, 1, 2])
        return autograd._get_debug_info()

    none = {"num_autograd_contexts": "0", "num_current_backward_passes": "0"}
    assert on_first(body, 3, seed) == none


@pytest.mark.simulated
def test_a_late_call_does_not_begin_a_context_that_is_over() -> None:
    def body() -> None:
        with autograd.context() as context_id:
            late = rpc.rpc_async("worker1", slow_add, (ones(), ones()))
        assert late.wait().sum() == 12
        wait_until_gone(context_id, [1])

    for seed in range(4):
        on_first(body, 3, seed)


def slow_add(a: Tensor, b: Tensor) -> Tensor:
    context.sleep(0.01)
    return rpc.rpc_sync("worker2", add, (a, b))


@pytest.mark.simulated
def test_an_error_in_the_block_releases_it() -> None:
    def body() -> None:
        with pytest.raises(KeyError, match="stop"):
            with autograd.context() as context_id:
                rpc.rpc_sync("worker1", add, (ones(), ones()))
                raise KeyError("stop")
        wait_until_gone(context_id, [0, 1])
        with autograd.context():
            with pytest.raises(RuntimeError, match="worker1"):
                rpc.rpc_sync("worker1", add, (ones(), dt.ones(5)))
        with autograd.context():
            pass

    on_first(body)


def test_threads_have_contexts_of_their_own(tmp_path: Any) -> None:
    def body(me: int) -> Any:
        found: dict[int, Any] = {}

        def run(i: int) -> None:
            x = (ones().detach() * i).requires_grad_()
            with autograd.context() as context_id:
                for _ in range(5):
                    out = rpc.rpc_sync(f"worker{1 - me}", add, (x * x, 1))
                autograd.backward(context_id, [out.sum()])
                grads = autograd.get_gradients(context_id)
                assert list(grads) == [x] and (grads[x] == 2 * i).all()
                found[i] = context_id

        threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return found

    for found in run_workers(2, body, tmp_path):
        assert len(found) == len(set(found.values())) == 6


@pytest.mark.simulated
def test_hundreds_of_contexts_leave_nothing() -> None:
    def body() -> Any:
        x = ones()
        alive = []
        for i in range(200):
            with autograd.context() as context_id:
                out = rpc.rpc_sync("worker1", add, (x, x))
                if i % 3 == 0:
                    autograd.backward(context_id, [out.sum()])
                alive.append(weakref.ref(autograd._current_context()))
        del out
        wait_until_gone(context_id, [1])
        gc.collect()
        infos = [autograd._get_debug_info(), rpc.rpc_sync(1, autograd._get_debug_info)]
        return sum(ref() is not None for ref in alive), infos

    left, infos = on_first(body)
    assert left == 0
    assert [info["num_autograd_contexts"] for info in infos] == ["0", "0"]
