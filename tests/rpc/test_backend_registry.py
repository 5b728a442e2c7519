"""What workers tell about themselves and about calls that failed; options and backends."""

import logging

import pytest

from disttrain import rpc
from disttrain.rpc import backend_registry
from disttrain.rpc.calls.failures import pack_failure, unpack_failure
from disttrain.rpc.calls.packing import Packer
from support.workers import run_workers


class Foreign(rpc.RpcBackendOptions):
    def __init__(self):
        rpc.RpcBackendOptions.__init__(self)


def fail():
    raise ValueError("first line\nsecond line")


def test_an_agent_tells_who_is_there_and_what_is_under_way(tmp_path):
    def body(rank):
        agent = rpc._get_current_rpc_agent()
        infos = agent.get_worker_infos()
        assert [(w.name, w.id) for w in infos] == [("worker0", 0), ("worker1", 1)]
        assert agent.get_worker_info() == infos[rank] and agent.get_worker_info(0) == infos[0]
        before = agent.get_debug_info()
        assert (
            before["agent.thread_pool_size"] == "27" and before["agent.client_active_calls"] == "0"
        )
        assert "agent.gil_average_wait_time_us" not in before
        rpc.enable_gil_profiling(True)
        assert float(agent.get_debug_info()["agent.gil_average_wait_time_us"]) > 0
        told = rpc.rpc_sync(1 - rank, debug_info)
        assert told["agent.server_active_calls"] != "0"
        rpc.enable_gil_profiling(False)
        return sorted(set(agent.get_debug_info()) ^ set(before))

    assert run_workers(2, body, tmp_path, num_worker_threads=27) == [[], []]


def debug_info():
    return rpc._get_current_rpc_agent().get_debug_info()


def test_a_failure_is_told_where_it_happened_with_its_lines_as_lines(caplog):
    worker = rpc.WorkerInfo("worker3", 3)
    with caplog.at_level(logging.WARNING):
        try:
            fail()
        except ValueError as error:
            told = str(unpack_failure(pack_failure(worker, error), Packer()))
    assert "ValueError('first line\nsecond line')" in told
    assert told in caplog.text


def test_options_must_be_those_of_the_backend():
    with pytest.raises(TypeError, match="Could not infer backend for options"):
        rpc.init_rpc("w", rank=0, world_size=1, rpc_backend_options=Foreign())
    with pytest.raises(TypeError, match="must be a `TensorPipeRpcBackendOptions`; Foreign given"):
        rpc.init_rpc("w", rpc.BackendType.TENSORPIPE, 0, 1, rpc_backend_options=Foreign())
    assert backend_registry.backend_registered("TENSORPIPE")
