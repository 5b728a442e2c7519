"""``torch.distributed.rpc`` and its neighbours under PyTorch's names."""

from __future__ import annotations

import importlib
import sys
from unittest import mock

import pytest

import disttrain as dt
from disttrain import rpc
from disttrain.compat.publish import MissingName
from disttrain.compat.torch import remote
from support.workers import run_workers


def double(x):
    return x + x


class Nested:
    """Says itself how it travels, by packing a call of its own."""

    def __init__(self):
        self.t = None

    def __getstate__(self):
        internal = modules()["torch.distributed.rpc.internal"]
        udf = internal.PythonUDF(double, (dt.ones(2),), {})
        return internal._internal_rpc_pickler.serialize(udf)

    def __setstate__(self, state):
        internal = modules()["torch.distributed.rpc.internal"]
        udf = internal.deserialize(*state)
        self.t = udf.func(*udf.args)


def modules():
    return remote.modules()


def take(nested):
    return nested.t * 2


def test_the_modules_have_the_names_that_programs_import():
    names = {
        "rpc": "init_rpc shutdown rpc_sync rpc_async remote RRef WorkerInfo BackendType PyRRef "
        "get_worker_info TensorPipeRpcBackendOptions RpcBackendOptions TensorPipeAgent functions "
        "api options constants backend_registry internal get_rpc_timeout _set_rpc_timeout "
        "_get_debug_info",
        "rpc.api": "rpc_sync rpc_async remote shutdown RRef get_worker_info _wait_all _all_gather "
        "_barrier _wait_all_workers _thread_local_var",
        "rpc.functions": "async_execution",
        "rpc.options": "TensorPipeRpcBackendOptions",
        "rpc.constants": "DEFAULT_RPC_TIMEOUT_SEC UNSET_RPC_TIMEOUT DEFAULT_NUM_WORKER_THREADS",
        "rpc.backend_registry": "BackendType register_backend backend_registered",
        "rpc.internal": "RPCExecMode PythonUDF _internal_rpc_pickler _build_rpc_profiling_key",
        "autograd": "context backward get_gradients DistAutogradContext is_available",
        "nn.api.remote_module": "RemoteModule _RemoteModule _REMOTE_MODULE_PICKLED_ATTRIBUTES",
        "optim.optimizer": "DistributedOptimizer",
    }
    found = modules()
    for name, wanted in names.items():
        shim = found[f"torch.distributed.{name}"]
        missing = [
            n for n in wanted.split() if not (hasattr(shim, n) or hasattr_module(found, name, n))
        ]
        assert not missing, (name, missing)
    with pytest.raises(MissingName, match=r"torch\.distributed\.rpc\.nothing is not part of"):
        _ = found["torch.distributed.rpc"].nothing


def hasattr_module(found, name, child):
    return f"torch.distributed.{name}.{child}" in found


def test_a_function_put_in_a_module_is_called_in_place_of_its_own():
    api = modules()["torch.distributed.rpc.api"]
    ours = importlib.import_module("disttrain.rpc.api")
    kept = ours._wait_all_workers
    with mock.patch.object(api, "_wait_all_workers") as changed:
        assert ours._wait_all_workers is changed
    assert ours._wait_all_workers is kept and api._wait_all_workers is kept


def test_values_that_pack_themselves(tmp_path):
    def body(rank):
        return rpc.rpc_sync(1 - rank, take, (Nested(),)).tolist()

    assert run_workers(2, body, tmp_path) == [[4.0, 4.0]] * 2


def test_sparse_tensors_travel_as_they_are(tmp_path):
    def body(rank):
        x = dt.sparse_coo_tensor([[1, 1, 0]], [1.0, 2.0, 3.0], (3,))
        y = rpc.rpc_sync(1 - rank, identity, (x,))
        assert y.is_sparse and not y.is_coalesced() and y._nnz() == 3
        assert rpc.rpc_sync(1 - rank, identity, (x.coalesce(),)).is_coalesced()
        return rpc.rpc_sync(1 - rank, dt.add, (x, x)).to_dense().tolist()

    assert run_workers(2, body, tmp_path) == [[6.0, 6.0, 0.0]] * 2


def identity(x):
    return x


def test_nothing_is_loaded_before_it_is_asked_for():
    names = "disttrain.rpc", "disttrain.rpc.autograd", "grpc"
    code = (
        "import sys, disttrain.compat.torch as c; c.install(); import torch; "
        "import torch.distributed.rpc, torch.distributed.autograd; "
        f"print([n for n in {names!r} if n in sys.modules])"
    )
    import subprocess

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert out.stdout.strip() == "[]", out.stderr
