"""The command line as data: both spellings, variables, what is refused, what goes together."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from disttrain_launcher import clusters
from disttrain_launcher.options.command_line import ALONE, Options, parse, parser, take_defaults
from disttrain_launcher.options.simulation import Flags

pytestmark = pytest.mark.simulated


def refused(capsys, *words, env=None):
    """What a command line that cannot be meant is told."""
    with pytest.raises(SystemExit) as ended:
        parse([*words], env or {})
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_both_spellings_and_the_environment_set_flags():
    dashes = parse(["--nproc-per-node=2", "--max-restarts", "3", "t.py", "--max-restarts", "9"], {})
    lines = parse(["--nproc_per_node", "2", "--max_restarts=3", "t.py", "--max-restarts", "9"], {})
    assert dashes == lines
    assert dashes.program == ("t.py", "--max-restarts", "9") and dashes.max_restarts == 3
    env = {"PET_NPROC_PER_NODE": "4", "PET_MASTER_PORT": "1234", "PET_STANDALONE": "1"}
    assert parse(["t.py"], env).nproc_per_node == 4
    assert parse(["--nproc-per-node", "3", "t.py"], env).nproc_per_node == 3
    assert parse(["t.py"], env).master_port == 1234
    assert parse(["--node-rank", "1", "t.py"], {}).program == ("t.py",)  # alone, it says nothing


def test_underscores_in_the_scripts_own_flags_stay():
    assert parse(["t.py", "--batch_size", "8"], {}).program == ("t.py", "--batch_size", "8")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--nproc-per-node", "2"],
        ["--max-restarts", "-1", "t.py"],
        ["--master-port", "70000", "t.py"],
        ["-r", "7", "t.py"],
        ["-t", "x:1", "t.py"],
        ["--local-ranks-filter", "a", "t.py"],
        ["--signals-to-handle", "SIGNOPE", "t.py"],
        ["--nnodes", "2", "--node-rank", "2", "t.py"],
        ["--start-method", "thread", "t.py"],
        ["--nproc-per-node", "gpu", "t.py"],
    ],
)
def test_bad_values_end_with_code_2(argv, capsys, monkeypatch):
    none = SimpleNamespace(stdout='{"count": 0, "why": "there is none"}')  # of devices
    monkeypatch.setattr(subprocess, "run", lambda *args, **more: none)
    with pytest.raises(SystemExit) as ended:
        parse(argv, {})
    assert ended.value.code == 2
    assert "dtrun: error:" in capsys.readouterr().err


@pytest.mark.parametrize("env", [{"PET_NPROC_PER_NODE": "x"}, {"PET_MAX_RESTARTS": "y"}])
def test_bad_values_from_the_environment_too(env, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(["t.py"], env)
    assert ended.value.code == 2


def test_torchruns_other_flags_are_accepted():
    flags = "--nnodes 1:1 --rdzv-backend c10d --rdzv-endpoint localhost:0 --rdzv-id x --standalone"
    flags += " --rdzv-conf timeout=5 --monitor-interval 1 --role r --node-rank 0 --local-addr a"
    flags += " --run-path --start-method forkserver"
    assert parse([*flags.split(), "t.py"], {}).role == "r"
    assert parse(["--rdzv-endpoint", "h:29400", "t.py"], {}).master_port == 29400


@pytest.mark.parametrize(
    "words, env, kind",
    [
        (["--run-path", "--no-python"], {}, (False, False)),
        (["--run-path"], {"PET_MODULE": "1"}, (False, False)),
        (["-m"], {"PYTHON_EXEC": sys.executable}, (True, False)),
    ],
)
def test_kinds_of_programs(words, env, kind):
    options = parse([*words, "t", "--x"], env)
    assert (options.module, options.no_python) == kind
    assert options.program == ("t", "--x")


def test_another_python_is_an_executable():
    options = parse(["-m", "t", "--x"], {"PYTHON_EXEC": "/other/python"})
    assert (options.module, options.no_python) == (False, True)
    assert options.program == ("/other/python", "-u", "-m", "t", "--x")


@pytest.mark.parametrize(
    "words", [["--node-rank", "1"], ["--node-rank=1", "--standalone", "--master-port=1234"]]
)
def test_the_number_of_a_node_means_nothing_to_one_that_is_alone(words):
    assert parse([*words, "t.py"], {}).rendezvous is None


def test_nodes_of_one_machine_need_no_endpoint():
    options = parse(["--nnodes", "2", "--rdzv-backend", "c10d", "t.py"], {})
    assert (options.rendezvous.host, options.rendezvous.port) == ("localhost", 29400)


def test_torchruns_other_variable_of_the_time_to_end():
    env = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}
    assert parse(["t.py"], env).shutdown_timeout == 7
    assert parse(["t.py"], env | {"PET_SHUTDOWN_TIMEOUT": "3"}).shutdown_timeout == 3


def test_dash_m_and_no_python_contradict_each_other(capsys):
    with pytest.raises(SystemExit):
        parse(["-m", "--no-python", "t"], {})
    assert "the other an executable" in capsys.readouterr().err


def test_without_flags_a_program_is_one_rank_of_this_machine():
    options = parse(["t.py"], {})
    assert options == Options(("t.py",), shutdown_timeout=options.shutdown_timeout)
    assert options.place == ALONE and not options.mpi and not options.dry_run
    assert (options.simulated, options.fake, options.rendezvous) == (None, None, None)


def test_a_flag_s_variable_may_be_empty_or_say_no():
    p = parser()
    take_defaults(p, {"PET_DRY_RUN": "0", "PET_MODULE": "1", "PET_ROLE": "worker"})
    given = p.parse_args(["t.py"])
    assert (given.dry_run, given.module, given.role) == (False, True, "worker")


@pytest.mark.parametrize(
    "words, told",
    [
        (["--fake-rank", "1"], "Add --fake N"),
        (["--fake", "2", "--fake-rank", "2"], "0 <= rank < N"),
        (["--fake", "2", "--no-python"], "one rank of a Python program"),
        (["--seed", "3"], "add --simulate N"),
        (["--simulate", "-1"], "at least one rank"),
        (["--simulate", "2", "--no-python"], "must be Python"),
        (["--simulate", "2", "--start-method", "spawn"], "run by fork"),
        (["--backend", "nccl"], "mpi is needed"),
        (["--backend", "mpi", "--simulate", "2"], "which MPI cannot start"),
        (["--hostfile", "hosts"], "add --backend mpi"),
        (["--stopped-timeout", "-1"], "at least 0 is needed"),
        (["--master-port", "65536"], "a number from 0 to 65535"),
        (["--numa-binding", "node", "--fake", "2"], "binds processes that dtrun starts here"),
        (["--signals-to-handle", "SIGTERM,9"], "9 is no signal's name"),
    ],
)
def test_what_does_not_go_together_says_why(words, told, capsys):
    assert told in refused(capsys, *words, "t.py")


def test_ranks_that_are_played_or_simulated():
    assert parse(["--fake", "8", "--fake-rank", "3", "t.py"], {}).fake == (3, 8)
    simulated = parse(["--simulate", "64", "--seed", "5", "t.py"], {})
    assert simulated.nproc_per_node == 64 and simulated.simulated == Flags(seed=5)


def test_signals_are_numbers_and_may_be_none():
    assert parse(["--signals-to-handle", " SIGUSR1, SIGTERM", "t.py"], {}).signals == (
        signal.SIGUSR1,
        signal.SIGTERM,
    )
    assert parse(["--signals-to-handle", "", "t.py"], {}).signals == ()


def test_the_endpoint_of_a_job_alone_is_its_store():
    def place(*words):
        options = parse([*words, "t.py"], {})
        return options.master_addr, options.master_port

    assert place("--rdzv-endpoint", " h:29400 ") == ("h", 29400)
    assert place("--rdzv-endpoint", "h") == ("h", 0)
    assert place("--rdzv-endpoint", "h:1", "--standalone", "--master-port", "7") == ("127.0.0.1", 7)


def test_an_executable_is_started_anew_for_each_rank():
    assert parse(["--no-python", "./t"], {}).start_method == "spawn"
    assert parse(["t.py"], {}).start_method == "fork"


def test_a_cluster_that_there_is_not(capsys):
    told = refused(capsys, "--cluster", "slrum", "t.py")
    assert all(name in told for name in clusters.NAMES) and "ray://HOST:PORT" in told


def test_one_face_at_most(capsys):
    assert parse(["t.py"], {}).face == ""
    assert parse(["--as-torch", "t.py"], {}).face == "torch"
    assert "not allowed with argument --as-jax" in refused(capsys, "--as-jax", "--as-torch", "t.py")
