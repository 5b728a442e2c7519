"""PyTorch's names of the launcher's parts: jobs that programs start themselves."""

import os
import subprocess
import sys
import textwrap

import pytest

from disttrain.compat.torch.elastic import c10d, events, handlers, meeting, running, static
from disttrain.compat.torch.elastic.agents import LocalElasticAgent, WorkerSpec
from disttrain.compat.torch.elastic.builtin import get_rendezvous_handler, handler_registry
from disttrain.compat.torch.elastic.errors import ChildFailedError, ErrorHandler, ProcessFailure
from disttrain.compat.torch.elastic.launching import LaunchConfig, elastic_launch
from disttrain.compat.torch.elastic.processes import DefaultLogsSpecs, SignalException, Std
from disttrain.compat.torch.elastic.stores import create_c10d_store, get_free_port
from disttrain.errors import StoreError


def config(**other):
    told = {"rdzv_backend": "c10d", "run_id": "some", "max_restarts": 0, **other}
    return LaunchConfig(1, 1, 2, **told)


def test_a_function_runs_on_all_workers_and_its_results_come_back_by_rank():
    def body(add):
        return int(os.environ["RANK"]) + add, os.environ["TORCHELASTIC_RUN_ID"]

    assert elastic_launch(config(), body)(10) == {0: (10, "some"), 1: (11, "some")}


def test_a_failed_job_raises_with_each_failure_and_its_traceback():
    def body():
        if os.environ["RANK"] == "1":
            raise KeyError("lost key")

    with pytest.raises(ChildFailedError, match=r"(?s)body FAILED.*rank      : 1.*lost") as caught:
        elastic_launch(config(), body)()
    rank, first = caught.value.get_first_failure()
    assert (rank, first.exitcode) == (1, 1)
    assert "raise KeyError" in first.message


def test_a_killed_worker_is_told_by_its_signal():
    def body():
        os.kill(os.getpid(), 9)

    with pytest.raises(ChildFailedError) as caught:
        elastic_launch(config(), body)()
    failure = caught.value.failures[0]
    assert (failure.exitcode, failure.signal_name()) == (-9, "SIGKILL")


def test_a_signal_to_the_agent_ends_the_job_and_not_the_rendezvous():
    def body():
        os.kill(os.getppid(), 15)
        import time

        time.sleep(30)

    with pytest.raises(SignalException) as caught:
        elastic_launch(config(shutdown_timeout=1), body)()
    assert caught.value.sigval == 15


def test_torchrun_called_from_a_program_runs_scripts_in_processes_of_their_own(tmp_path):
    script = tmp_path / "one.py"
    script.write_text("import os, sys\nopen(sys.argv[1] + os.environ['RANK'], 'w')\n")
    running.main(["--nnodes=1", "--nproc_per_node=2", str(script), f"{tmp_path}/rank"])
    assert {p.name for p in tmp_path.iterdir()} == {"one.py", "rank0", "rank1"}
    script.write_text("raise SystemExit(3)")
    with pytest.raises(ChildFailedError, match=r"one\.py FAILED"):
        running.main([str(script)])
    running.main(["--no-python", "true"])
    with pytest.raises(ValueError, match="--no-python"):
        running.main(["--no-python", "--module", "true"])
    with pytest.raises(ValueError, match="Unsupported nproc_per_node value: many"):
        running.main(["--nproc-per-node=many", str(script)])


def test_the_modules_are_there_under_pytorchs_names(tmp_path):
    program = tmp_path / "names.py"
    program.write_text(
        textwrap.dedent("""
        import runpy, sys
        import torch.distributed.launch
        from torch.distributed.elastic.agent.server.api import WorkerState
        try:
            from torch.distributed.elastic.multiprocessing import Std, start_method_of_nobody
        except ImportError as error:
            print(error, file=sys.stderr)
        del sys.argv[1:]
        runpy.run_module("torch.distributed.run", run_name="__main__")
        """)
    )
    done = subprocess.run(
        [sys.executable, "-m", "disttrain.compat.torch", str(program)],
        capture_output=True,
        text=True,
    )
    assert "start_method_of_nobody is not part of" in done.stderr
    assert "no program given" in done.stderr  # dtrun's own words


class Told(handlers.RendezvousHandler):
    """Of a program's own: says where the ranks meet."""

    over, nodes = 0, 1

    def get_backend(self):
        return "told"

    def next_rendezvous(self):
        where = handlers.RendezvousStoreInfo("127.0.0.1", 12345)
        return handlers.RendezvousInfo(None, 0, self.nodes, where)

    def is_closed(self):
        return False

    def set_closed(self):
        pass

    def num_nodes_waiting(self):
        return 0

    def get_run_id(self):
        return "told-run"

    def shutdown(self):
        Told.over += 1
        return True


def test_a_handler_of_the_programs_own_says_where_ranks_meet():
    handler_registry().register("told", lambda params: Told())
    seen = elastic_launch(
        config(rdzv_backend="told"), lambda: (os.environ["MASTER_PORT"], os.environ["RANK"])
    )()
    assert seen == {0: ("12345", "0"), 1: ("12345", "1")}
    assert Told.over == 1
    Told.nodes = 2  # not silently two jobs of one node each
    with pytest.raises(handlers.RendezvousError, match=r"node 0 of 2.*rdzv_backend c10d"):
        elastic_launch(config(rdzv_backend="told"), print)()
    with pytest.raises(ValueError, match="not registered"):
        elastic_launch(config(rdzv_backend="unknown"), print)()


def test_an_agent_is_made_of_a_specification():
    params = handlers.RendezvousParameters("static", "localhost:29999", "run", 1, 1, rank=0)
    handler = get_rendezvous_handler(params)
    assert isinstance(handler, static.StaticTCPRendezvous)
    with pytest.raises(ValueError, match="no entrypoint"):
        WorkerSpec("role", 1, handler)
    spec = WorkerSpec("role", 1, handler, entrypoint=lambda: os.environ["MASTER_PORT"])
    result = LocalElasticAgent(spec, DefaultLogsSpecs()).run()
    assert (result.is_failed(), result.return_values) == (False, {0: "29999"})


def test_a_state_is_replaced_only_by_who_knows_the_last_one():
    port = get_free_port()
    params = handlers.RendezvousParameters("c10d", f"localhost:{port}", "run", 1, 1, is_host=True)
    backend, store = c10d.create_backend(params)
    assert backend.get_state() is None
    state, token, done = backend.set_state(b"one")
    assert (state, done) == (b"one", True)
    assert backend.set_state(b"late")[::2] == (b"one", False)
    assert backend.set_state(b"two", token)[::2] == (b"two", True)
    assert backend.get_state()[0] == b"two"
    store.close()


def test_workers_exchange_bytes_and_wait_in_a_store():
    store = create_c10d_store(True, "localhost", 0, 1)
    assert meeting.synchronize(store, b"mine", 0, 1, "k") == [b"mine"]
    meeting.barrier(store, 1, "b")
    with pytest.raises(StoreError, match=r"missing_ranks=\[1\]"):
        meeting.barrier(store, 2, "c", 0.05, rank=0, trace_timeout=0.05)
    store.close()
    with pytest.raises(ValueError, match="server_port must be specified"):
        create_c10d_store(True, "localhost", world_size=2)


def test_a_failure_is_read_from_the_error_file(tmp_path, monkeypatch):
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    ErrorHandler().record_exception(ValueError("wrong"))
    failure = ProcessFailure(0, 1, 1, str(path))
    assert failure.message.startswith("ValueError: wrong")
    assert failure.timestamp > 0


def test_outputs_are_named_by_number_and_rank():
    assert Std.from_str("3") == Std.ALL
    assert Std.from_str("0:1,2:3") == {0: Std.OUT, 2: Std.ALL}
    for bad in ("4", "0:1,", "1,0:1", ""):
        with pytest.raises(ValueError):
            Std.from_str(bad)


def test_an_event_goes_to_json_and_back():
    event = events.Event("name", events.EventSource.AGENT, metadata={"a": 1})
    assert events.Event.deserialize(event.serialize()) == event
