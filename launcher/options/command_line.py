"""The command line of ``dtrun``: torchrun's flags, checked, as a frozen dataclass.

Every flag can be spelled with ``-`` or ``_``, and set by ``PET_<FLAG>`` in the environment. Uses
the standard library only, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from .. import clusters
from . import devices, elastic, logs, parsing, recording, rendezvous, sanitizing
from .environment import environment
from .parsing import MORE, Parser, program_of
from .rendezvous import LOOPBACK, ONE_NODE, Rendezvous
from .simulation import Flags, add_flags, flags_of

ALONE = clusters.Place()
FACES = ("torch", "jax", "tensorflow")  # whose names a script may use: ``--as-torch`` ...
ALIASES = {"shutdown_timeout": "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"}  # other variables of torchrun's


@dataclass(frozen=True)
class Settings:
    """What the command line says and the plan of a job repeats. ``program`` is the script or module
    with its arguments."""

    program: tuple[str, ...]
    _: KW_ONLY
    module: bool = False
    no_python: bool = False
    run_path: bool = False
    max_restarts: int = 0
    run_id: str = "none"
    role: str = "default"
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    log_dir: str | None = None
    redirects: str = "0"
    tee: str = "0"
    duplicates: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # filters of stdout, of stderr
    event_log: str = "null"
    signals: tuple[int, ...] = ()
    shutdown_timeout: float = 5.0
    stopped_timeout: float = 2.0
    straggler_report: bool = False
    blackbox: bool = False  # of all nodes, gathered also where nothing has failed
    # What ranks record: folder, level, steps, ranks, payloads; none: nothing.
    record: tuple[str, ...] = ()
    sanitize: tuple[str, ...] = ()  # what ranks look for, and where findings go; none: nothing
    min_ranks: int = 0  # 0: all
    replace_ranks: bool = False
    on_term: str = "exit"  # or checkpoint
    post_mortem: bool = False  # a rank that fails stops in the debugger
    mpi: bool = False


@dataclass(frozen=True)
class Options(Settings):
    """What to start and how."""

    nproc_per_node: int = 1
    _: KW_ONLY
    face: str = ""  # the library that `import` means disttrain by
    start_method: str = "fork"
    local_ranks_filter: tuple[int, ...] | None = None
    signals: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    hostfile: str | None = None
    dry_run: bool = False
    binding: str = "none"
    virtual_local_rank: bool = False
    simulated: Flags | None = None
    fake: tuple[int, int] | None = None  # one process plays that rank of so many
    place: clusters.Place = ALONE  # what the cluster says of this node
    rendezvous: Rendezvous | None = None  # of a job on several nodes
    token_file: str | None = None


def parser() -> argparse.ArgumentParser:
    """The parser, for ``--help`` and for tests."""
    p = Parser(
        prog="dtrun",
        usage="dtrun [options] program [arguments]",
        description="Start a training script on several ranks, of this machine or of many.",
        epilog=MORE,
    )
    add = p.add_argument
    add("--nproc-per-node", default="1", metavar="N", help="ranks: a number, auto, cpu or gpu")
    add("-m", "--module", action="store_true", help="the program is a module, as with python -m")
    add("--no-python", action="store_true", help="the program is an executable, not Python")
    add("--run-path", action="store_true", help="the program is a Python script, as it always is "
        "without -m and --no-python, which this overrules")  # fmt: skip
    faces = p.add_mutually_exclusive_group()
    for name in FACES:
        told = f"let `import {name}` in the script mean disttrain"
        faces.add_argument(
            f"--as-{name}", action="store_const", dest="face", const=name, default="", help=told
        )
    add("--backend", default="", metavar="NAME", help="mpi: make the ranks an MPI job, by mpiexec")
    add("--hostfile", default=None, metavar="F", help="with --backend mpi: hosts, with slots=N")
    add("--start-method", default="fork", choices=("fork", "forkserver", "spawn"),
        help="fork ranks from one warm process, or start a fresh Python for each")  # fmt: skip
    add("--standalone", action="store_true", help="one machine, any free port (the default)")
    add("--monitor-interval", type=float, default=0.1, help="accepted; exits are seen at once")
    add("--role", default="default", help="the name of this group of ranks")
    add("--signals-to-handle", default="SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        help="signals that are passed on to the ranks")  # fmt: skip
    add(
        "--stopped-timeout",
        type=float,
        default=2.0,
        metavar="S",
        help="seconds after which a rank that was stopped (SIGSTOP) counts as failed; 0: never",
    )
    add("--straggler-report", action="store_true",
        help="print at the end how long each rank was busy, and waited for others")  # fmt: skip
    add("--pdb", action="store_true",
        help="a rank that fails stops in the debugger, where its error was raised")  # fmt: skip
    add("--dry-run", action="store_true", help="print what would be started, and start nothing")
    rendezvous.add_flags(p)
    elastic.add_flags(p)
    add_flags(p)
    logs.add_flags(p)
    recording.add_flags(p)
    sanitizing.add_flags(p)
    parsing.add_flags(p)
    add("program", nargs=argparse.REMAINDER, help="the script (or module) and its arguments")
    return p


def parse(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Options:
    """The options of a command line; a usage error exits with code 2 and says what is needed."""
    p = parser()
    devices.add_flags(p)
    clusters.add_flags(p)
    given, place = _given(p, argv, environment(env))
    program = program_of(given.program)
    given.rdzv_endpoint = given.rdzv_endpoint.strip()
    if given.run_path:
        given.module = given.no_python = False
    if given.module and given.no_python:
        p.error("-m with --no-python: the one is a module of Python's, the other an executable")
    if not program:
        p.error("no program given; needed is a script: dtrun --nproc-per-node 4 train.py")
    program = _interpreted(given, program, environment(env))
    meeting = rendezvous.rendezvous_of(p, given)
    simulated = _simulated(p, given)
    return Options(
        program=tuple(program),
        nproc_per_node=given.simulate if simulated else _ranks(p, given),
        simulated=simulated,
        fake=_fake(p, given),
        module=given.module,
        run_path=given.run_path,
        no_python=given.no_python,
        face=given.face,
        start_method="spawn" if given.no_python else given.start_method,
        **elastic.options_of(p, given),
        **logs.options_of(p, given),
        **recording.options_of(p, given),
        **sanitizing.options_of(p, given),
        run_id=given.rdzv_id,
        role=given.role,
        master_addr=_endpoint(given, meeting)[0],
        master_port=_port(p, _endpoint(given, meeting)[1]),
        signals=_signals(p, given.signals_to_handle),
        straggler_report=given.straggler_report,
        post_mortem=_post_mortem(p, given),
        stopped_timeout=_at_least(p, "--stopped-timeout", given.stopped_timeout, 0),
        mpi=_mpi(p, given),
        hostfile=given.hostfile,
        dry_run=given.dry_run,
        binding=_binding(p, given),
        virtual_local_rank=given.virtual_local_rank,
        place=place,
        rendezvous=meeting,
        token_file=given.token_file,
    )


def _interpreted(
    given: argparse.Namespace, program: list[str], env: Mapping[str, str]
) -> list[str]:
    """As with torchrun, PYTHON_EXEC names the Python that runs the program. Ours forks ranks, any
    other one is an executable like all others."""
    other = env.get("PYTHON_EXEC", sys.executable)
    if given.no_python or given.run_path or not other or other == sys.executable:
        return program
    program = [other, "-u", *(["-m"] if given.module else []), *program]
    given.module, given.no_python = False, True
    return program


def _given(
    p: argparse.ArgumentParser, argv: Sequence[str], env: Mapping[str, str]
) -> tuple[argparse.Namespace, clusters.Place]:
    """What the command line says, completed by variables and by what the cluster answers."""
    take_defaults(p, env)
    given = p.parse_args(list(argv))
    place = _place(p, given, env)
    if answers := _answers(p, given, place, env):
        given = p.parse_args(list(argv), argparse.Namespace(**answers))
    if place.name_timeout and "name_timeout" not in given.rdzv_conf:
        own = f"name_timeout={place.name_timeout:g}"
        given.rdzv_conf = ",".join(filter(None, (given.rdzv_conf, own)))
    return given, place


def _place(
    p: argparse.ArgumentParser, given: argparse.Namespace, env: Mapping[str, str]
) -> clusters.Place:
    """What the environment says of this node. One machine alone asks nothing of it."""
    if not clusters.is_known(given.cluster):
        names = ", ".join(clusters.NAMES)
        p.error(f"--cluster {given.cluster}: one of {names} or ray://HOST:PORT is needed")
    alone = given.standalone or given.simulate or given.fake or given.backend == "mpi"
    if given.cluster == "auto" and (alone or given.nnodes == "1"):
        return ALONE
    try:
        return clusters.find(given.cluster, env)
    except ValueError as error:
        p.error(str(error))


def _answers(
    p: argparse.ArgumentParser,
    given: argparse.Namespace,
    place: clusters.Place,
    env: Mapping[str, str],
) -> dict[str, str | int]:
    """The options that the place answers and nobody else has: neither a variable, nor (since these
    are but what parsing begins with) the command line."""
    if place.doubt and given.nnodes == ONE_NODE:
        p.error(place.doubt)
    answers = {k: v for k, v in place.answers().items() if f"PET_{k.upper()}" not in env}
    if given.master_addr != LOOPBACK:
        answers.pop("rdzv_endpoint", None)
    return answers


def _mpi(p: argparse.ArgumentParser, given: argparse.Namespace) -> bool:
    """Whether ranks are an MPI job. Other transports need nothing of the launcher."""
    if given.backend not in ("", "mpi"):
        p.error(f"--backend {given.backend}: mpi is needed; the script names any other one itself")
    if given.backend == "mpi" and given.simulate:
        p.error("--backend mpi: simulated ranks are threads, which MPI cannot start")
    if given.hostfile and given.backend != "mpi":
        p.error(f"--hostfile {given.hostfile}: it is for mpiexec; add --backend mpi")
    return given.backend == "mpi"


def take_defaults(p: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """``PET_NPROC_PER_NODE=4`` sets ``--nproc-per-node 4`` unless the flag is given."""
    for action in p._actions:
        value = env.get(f"PET_{action.dest.upper()}", env.get(ALIASES.get(action.dest, "")))
        if value is None or action.dest in ("help", "program"):
            continue
        if action.nargs == 0:
            action.default = value not in ("0", "", "false", "False")
        else:
            action.default = value


def _simulated(p: argparse.ArgumentParser, given: argparse.Namespace) -> Flags | None:
    """The flags of ``--simulate``; None without it, where they mean nothing."""
    flags = flags_of(given)
    if not given.simulate:
        if flags != Flags():
            p.error("--seed, --hosts, --kill ... are for a simulated cluster; add --simulate N")
        return None
    if given.simulate < 1 or flags.explore < 0:
        p.error(f"--simulate {given.simulate}: at least one rank is needed")
    if flags.explore and flags.replay:
        p.error("--replay runs one order of messages, and --explore tries many: give one of them")
    if flags.verdict and not flags.explore:
        p.error(f"--verdict {flags.verdict}: it is --explore that gives one")
    if given.no_python or given.start_method == "spawn":
        p.error("--simulate: ranks are threads here, so the program must be Python, run by fork")
    return flags


def _fake(p: argparse.ArgumentParser, given: argparse.Namespace) -> tuple[int, int] | None:
    """(rank, number of ranks) of ``--fake``."""
    if not given.fake:
        if given.fake_rank:
            p.error("--fake-rank: which rank of how many? Add --fake N")
        return None
    if not 0 <= given.fake_rank < given.fake:
        p.error(f"--fake {given.fake} --fake-rank {given.fake_rank}: 0 <= rank < N is needed")
    if given.simulate or given.no_python:
        p.error("--fake: it plays one rank of a Python program, in this process")
    return given.fake_rank, given.fake


def _ranks(p: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    try:
        return devices.num_ranks(given.nproc_per_node, given.virtual_local_rank)
    except ValueError as error:
        p.error(f"--nproc-per-node {error}")


def _binding(p: argparse.ArgumentParser, given: argparse.Namespace) -> str:
    if given.numa_binding not in devices.BINDINGS:  # from the environment
        modes = ", ".join(devices.BINDINGS)
        p.error(f"--numa-binding {given.numa_binding}: one of {modes} is needed")
    if given.numa_binding != "none" and (given.simulate or given.fake or given.hostfile):
        p.error(f"--numa-binding {given.numa_binding}: it binds processes that dtrun starts here")
    return given.numa_binding


def _post_mortem(p: argparse.ArgumentParser, given: argparse.Namespace) -> bool:
    if given.pdb and (given.no_python or given.fake):
        p.error("--pdb: it is for ranks of a Python program that dtrun starts")
    return bool(given.pdb)


def _at_least(p: argparse.ArgumentParser, flag: str, value: float, low: float):
    if value < low:
        p.error(f"{flag} {value:g}: at least {low:g} is needed")
    return value


def _endpoint(given: argparse.Namespace, r: Rendezvous | None) -> tuple[str, int | str]:
    """MASTER_ADDR and MASTER_PORT of a job on one machine, of which the endpoint is its store."""
    host, _, port = given.rdzv_endpoint.rpartition(":")
    if given.rdzv_endpoint and not given.standalone and r is None:
        return host or given.rdzv_endpoint, port if host else 0
    return given.master_addr, given.master_port


def _port(p: argparse.ArgumentParser, value: int | str) -> int:
    if not str(value).isdigit() or int(value) > 65535:
        p.error(f"port {value!r}: a number from 0 to 65535 is needed")
    return int(value)


def _signals(p: argparse.ArgumentParser, text: str) -> tuple[int, ...]:
    out = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name not in signal.Signals.__members__:
            p.error(f"--signals-to-handle {text}: {name} is no signal's name")
        out.append(int(signal.Signals[name]))
    return tuple(out)
