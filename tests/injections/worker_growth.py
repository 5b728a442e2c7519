#!/usr/bin/env python3
"""Call and go back through calls thousands of times: does either worker's memory grow?

    python tests/injections/worker_growth.py

Two workers; one makes 10,000 calls with tensors, then 1,000 autograd contexts with a forward and a
backward through both. Each time the memory of both is looked at after a tenth of it and at the end,
and what RPC keeps (contexts, RRefs, calls in flight) is counted.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
from collections.abc import Callable

import disttrain as dt
from disttrain import context, rpc
from disttrain.rpc import autograd

MOST = 2.0  # MB that both may gain together


def resident() -> float:
    """This worker's memory (MB)."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)


def kept() -> int:
    """What RPC keeps at this worker for the time after a call."""
    counts = rpc._rref_context_get_debug_info(), autograd._get_debug_info()
    names = ("num_owner_rrefs", "num_pending_users", "num_forks", "num_autograd_contexts")
    return sum(int(of[name]) for of in counts for name in names if name in of)


def double(x: dt.Tensor) -> dt.Tensor:
    return x * 2


def call(x: dt.Tensor) -> None:
    rpc.rpc_sync("worker1", double, args=(x,))


def go_back(x: dt.Tensor) -> None:
    with autograd.context() as number:
        autograd.backward(number, [rpc.rpc_sync("worker1", double, args=(x,)).sum()])


def growth(act: Callable[[dt.Tensor], None], times: int) -> float:
    """How many MB both workers gain over nine tenths of ``times`` acts."""
    x = dt.ones(1024, requires_grad=True)
    before = 0.0
    for k in range(times):
        if k == times // 10:
            before = resident() + rpc.rpc_sync("worker1", resident)
        act(x)
    return resident() + rpc.rpc_sync("worker1", resident) - before


def run(calls: int, contexts: int) -> list[str]:
    """What is wrong."""
    wrong = []
    for what, act, times in (("calls", call, calls), ("contexts", go_back, contexts)):
        grown = growth(act, times)
        print(f"{times} {what}: {grown:+.2f} MB", flush=True)
        if grown > MOST:
            wrong.append(f"{times} {what} cost {grown:.1f} MB")
    rpc.rpc_sync("worker1", double, args=(dt.ones(1),))  # brings what is said with the next call
    context.wait_until(lambda: kept() == 0, lambda: "all to be given back", 10)
    if there := rpc.rpc_sync("worker1", kept):
        wrong.append(f"worker1 keeps {there} contexts or RRefs")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--contexts", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        meet = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/store")
        other = os.fork()
        if other == 0:
            try:
                context.begin_anew()
                rpc.init_rpc("worker1", rank=1, world_size=2, rpc_backend_options=meet)
                rpc.shutdown()
            finally:
                os._exit(0)
        rpc.init_rpc("worker0", rank=0, world_size=2, rpc_backend_options=meet)
        wrong = run(options.calls, options.contexts)
        rpc.shutdown()
        os.waitpid(other, 0)
    for text in wrong:
        print(text)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
