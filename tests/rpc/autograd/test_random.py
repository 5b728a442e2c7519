"""Gradients over workers are those of one process, on random programs of calls."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from disttrain import rpc
from disttrain.rpc import autograd
from support.cases import call_programs as programs
from support.workers import run_workers, simulate_workers


def _call(to: int, fn: Any, *args: Any) -> Any:
    return rpc.rpc_sync(f"worker{to}", fn, args)


def _start(to: int, fn: Any, *args: Any) -> Any:
    return rpc.rpc_async(f"worker{to}", fn, args)


REMOTE = (_call, _start)


def gradients_on(context_id: int, key: int, worker: int) -> list:
    """The gradients of the leaves on ``worker``, in the program's order."""
    found = autograd.get_gradients(context_id) if _has(context_id) else {}
    grads = [found.pop(leaf, None) for leaf in programs.PROGRAMS[key].leaves(worker)]
    assert not found, f"gradients of something else: {list(found)}"
    return grads


def _has(context_id: int) -> bool:
    try:
        return autograd._is_valid_context(context_id)
    except RuntimeError:
        return False


def one_process(key: int, size: int) -> list[list]:
    program = programs.PROGRAMS[key] = programs.Program(size, key)
    programs.loss_of(key, None).backward()
    want = [[leaf.grad for leaf in program.leaves(w)] for w in range(size)]
    for w in range(size):
        for leaf in program.leaves(w):
            leaf.grad = None
    return want


def over_workers(key: int, size: int, passes: int = 1) -> list[list]:
    """The gradients by worker; called on worker 0."""
    with autograd.context() as context_id:
        loss = programs.loss_of(key, REMOTE)
        for i in range(passes):
            autograd.backward(context_id, [loss], retain_graph=i + 1 < passes)
        return [_call(w, gradients_on, context_id, key, w) for w in range(size)]


def assert_equal(got: list[list], want: list[list], times: int = 1) -> list[bytes]:
    """Compare, to 1e-12; the bits of what was found."""
    bits = []
    for w, (some, others) in enumerate(zip(got, want, strict=True)):
        for i, (x, y) in enumerate(zip(some, others, strict=True)):
            if x is None or y is None:  # no gradient is a gradient of zeros
                rest = x if y is None else y
                assert rest is None or not rest.abs().sum(), (w, i)
                continue
            assert (x - y * times).abs().max() <= 1e-12 * (1 + y.abs().max()), (w, i)
            bits.append(x.array.tobytes())
    return bits


@pytest.mark.simulated
@pytest.mark.parametrize("key", range(2, 10))
def test_gradients_equal_those_of_one_process_bit_by_bit_in_every_schedule(key: int) -> None:
    size = 2 + key % 3
    want = one_process(key, size)

    def body(me: int) -> Any:
        return None if me else over_workers(key, size, passes=1 + key % 2)

    bits = [
        assert_equal(simulate_workers(size, body, seed=seed)[0], want, 1 + key % 2)
        for seed in (key, 1000 + key)
    ]
    assert bits[0] == bits[1]
    del programs.PROGRAMS[key]


@pytest.mark.simulated
def test_several_contexts_at_once_do_not_meet() -> None:
    keys = [101, 102, 103]
    wanted = {key: one_process(key, 3) for key in keys}

    def body(me: int) -> Any:
        return over_workers(keys[me], 3) if me == 0 else _swapped(keys[me], me)

    def _swapped(key: int, me: int) -> None:
        """A context of this worker's own, beside."""
        with autograd.context() as context_id:
            loss = programs.loss_of(key, REMOTE)
            autograd.backward(context_id, [loss])
            grads = [_call(w, gradients_on_any, context_id, key, w) for w in range(3)]
        whole = sum(g.sum().item() for g in _flat(grads))
        assert whole == pytest.approx(sum(g.sum().item() for g in _flat(wanted[key])), rel=1e-12)

    for seed in range(3):
        assert_equal(simulate_workers(3, body, seed=seed)[0], wanted[keys[0]])
    for key in keys:
        del programs.PROGRAMS[key]


def gradients_on_any(context_id: int, key: int, worker: int) -> list:
    return list(autograd.get_gradients(context_id).values()) if _has(context_id) else []


def _flat(grads: list[list]) -> list:
    return [g for some in grads for g in some if g is not None]


def test_gradients_equal_those_of_one_process_on_real_processes(tmp_path: Any) -> None:
    keys = list(range(200, 212))
    wanted = {key: one_process(key, 3) for key in keys}

    def body(me: int) -> Any:
        if me:
            return None
        got: dict[int, Any] = {}

        def some(which: list[int]) -> None:
            for key in which:
                got[key] = over_workers(key, 3)

        threads = [threading.Thread(target=some, args=(keys[i::2],)) for i in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return got

    got = run_workers(3, body, tmp_path)[0]
    assert sorted(got) == keys
    for key in keys:
        assert_equal(got[key], wanted[key])
        del programs.PROGRAMS[key]


def test_the_programs_call_and_leave_results_unused() -> None:
    """What the tests above rely on."""
    calls = []

    def counting(to: int, fn: Any, *args: Any) -> Any:
        calls.append(to)
        return fn(*args)

    class Done:
        def __init__(self, value: Any) -> None:
            self.value = value

        def wait(self) -> Any:
            return self.value

    remote = (counting, lambda *args: Done(counting(*args)))
    for key in range(16):
        programs.PROGRAMS[key] = programs.Program(3, key)
        programs.loss_of(key, remote)
        del programs.PROGRAMS[key]
    assert len(calls) > 100 and set(calls) == {0, 1, 2}
