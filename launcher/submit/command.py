"""The command line of ``dtrun submit``: the options of ``dtrun``, and what the cluster must know.

    dtrun submit --to slurm --nnodes 4 --time 2:00:00 --nproc-per-node 8 train.py --lr 0.1

Everything is checked here, before the job waits in a queue.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence

from disttrain.errors import LaunchError

from ..options import command_line, forwarding
from . import batch, manifest, sending, yaml_text
from .job import Job, Kubernetes, Slurm

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")  # also that of a host (RFC 1035)
_OURS = ("help", "program", "nnodes", "dry_run", "cluster")  # not handed on as they are
MARGIN = 10  # seconds of the time to save that are left to end what has not ended by itself
_ONE_PROCESS = ("simulate", "fake", "standalone", "hostfile")


def main(argv: Sequence[str]) -> int:
    """Write the job down; print it (``--dry-run``) or submit it. The exit code."""
    p, given, handed_on = _parse(list(argv))
    job = _job(p, given, handed_on, _command(argv, given))
    try:
        if given.to == "slurm":
            return _to_slurm(job, _slurm(p, given), given.dry_run)
        return _to_kubernetes(job, _kubernetes(p, given), given.dry_run)
    except LaunchError as error:
        sys.stderr.write(f"dtrun: {error}\n")
        return 2


def _to_slurm(job: Job, slurm: Slurm, dry_run: bool) -> int:
    text = batch.script(job, slurm)
    if not dry_run:
        return sending.to_slurm(text)
    print(text, end="")
    return 0


def _to_kubernetes(job: Job, kubernetes: Kubernetes, dry_run: bool) -> int:
    objects = manifest.objects(job, kubernetes)
    if not dry_run:
        return sending.to_kubernetes(job, kubernetes, objects)
    print(
        f"# {job.written_by}\n#\n"
        "# The job's token is a Secret, which `dtrun submit` makes. By hand:\n"
        f"#   kubectl create secret generic {manifest.secret_name(job)} "
        f"--namespace {kubernetes.namespace} \\\n"
        '#     --from-literal=token="$(head -c 32 /dev/urandom | base64)"'
    )
    print(yaml_text.documents(objects), end="")
    return 0


def _parse(argv: list[str]) -> tuple[argparse.ArgumentParser, argparse.Namespace, list[str]]:
    """The parser, what it has found, and the options that ``dtrun`` gets on every node."""
    p, of_dtrun = forwarding.parser(_OURS)
    p.prog = "dtrun submit"
    p.description = "Write the job's batch script or manifest, and hand it to a cluster."
    p.epilog = (
        "Example: dtrun submit --to slurm --nnodes 4 --time 2:00:00 --nproc-per-node 8 train.py"
    )
    _add_flags(p)
    given = p.parse_args(argv, argparse.Namespace(on_term="checkpoint"))
    if given.shutdown_timeout is None and given.on_term == "checkpoint":
        given.shutdown_timeout = max(given.save_time - MARGIN, 1)
    given.program = forwarding.program(p, given)
    for name in _ONE_PROCESS:
        if getattr(given, name):
            p.error(f"--{name}: it is for one machine, and is not submitted")
    if given.gpus_per_node and given.nproc_per_node == "1":
        given.nproc_per_node = str(given.gpus_per_node)
    if given.cluster != "auto":
        p.error(f"--cluster {given.cluster}: the nodes find out by themselves")
    _check_range(p, given)
    handed_on = forwarding.words(of_dtrun, given)
    _check(given, handed_on)
    return p, given, handed_on


def _check(given: argparse.Namespace, handed_on: list[str]) -> None:
    """Would ``dtrun`` take these options? What it counts on the node is not counted here."""
    words = list(handed_on)
    if given.nproc_per_node in ("auto", "cpu", "gpu"):
        del words[words.index("--nproc-per-node") : words.index("--nproc-per-node") + 2]
    command_line.parse(["--cluster", "local", *words, *given.program], {})


def _check_range(p: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    for name in ("gpus_per_node", "cpus_per_node", "save_time", "restarts"):
        if getattr(given, name) < 0:
            p.error(f"--{name.replace('_', '-')} {getattr(given, name)}: at least 0 is needed")


def _add_flags(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("what the cluster is asked for").add_argument
    add("--to", required=True, choices=("slurm", "kubernetes"), help="which kind of cluster")
    add("--name", default="", help="the job's name (the program's, where none is given)")
    add("--gpus-per-node", type=int, default=0, metavar="N", help="GPUs; a rank for each")
    add("--cpus-per-node", type=int, default=0, metavar="N", help="processors")
    add("--mem", default="", metavar="SIZE", help="memory of a node, as the cluster writes it")
    add("--save-time", type=int, default=120, metavar="S",
        help="seconds from the SIGTERM that announces the end to the end")  # fmt: skip
    add("--restarts", type=int, default=3, metavar="N",
        help="how often the cluster may start the job again")  # fmt: skip
    add = p.add_argument_group("Slurm").add_argument
    add("--time", default="", metavar="[D-]H:M:S", help="the time limit")
    add("--partition", default="", metavar="P", help="the partition")
    add("--account", default="", metavar="A", help="the account")
    add("--output", default="%x-%j.out", metavar="FILE", help="where the output goes")
    add("--sbatch", action="append", default=[], metavar="OPTION",
        help="another option of sbatch, as --sbatch=--exclusive; may be repeated")  # fmt: skip
    add("--setup", action="append", default=[], metavar="LINE",
        help="a line of shell before the job, as 'module load cuda'; may be repeated")  # fmt: skip
    add = p.add_argument_group("Kubernetes").add_argument
    add("--image", default="", help="the container image, which has dtrun and the program")
    add("--namespace", default="default", metavar="N", help="the namespace")
    add("--port", type=int, default=29400, help="the port at which the nodes meet")
    add("--volume", action="append", default=[], metavar="CLAIM:PATH",
        help="a persistent volume and where it appears; may be repeated")  # fmt: skip


def _command(argv: Sequence[str], given: argparse.Namespace) -> str:
    """The command that submits what is written down."""
    before = len(argv) - len(given.program)
    words = [word for word in argv[:before] if word not in ("--dry-run", "--dry_run")]
    return shlex.join(["dtrun", "submit", *words, *argv[before:]]).replace("\n", " ")


def _job(
    p: argparse.ArgumentParser, given: argparse.Namespace, handed_on: list[str], command: str
) -> Job:
    return Job(
        name=_name(p, given),
        program=tuple(given.program),
        flags=tuple(handed_on),
        nodes=forwarding.nodes(p, given.nnodes),
        gpus=given.gpus_per_node,
        cpus=given.cpus_per_node,
        memory=given.mem,
        save_time=given.save_time,
        restarts=given.restarts,
        written_by=command,
    )


def _name(p: argparse.ArgumentParser, given: argparse.Namespace) -> str:
    """The job's name, by default that of the program. It becomes part of a host's name."""
    if given.name:
        if not _NAME.fullmatch(given.name):
            p.error(
                f"--name {given.name}: small letters, digits and '-' are needed, at most 52, the "
                "first a letter"
            )
        return str(given.name)
    stem = os.path.splitext(os.path.basename(given.program[0]))[0].lower()
    made = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:52].strip("-")
    return made if _NAME.fullmatch(made) else f"job-{made}".strip("-")


def _slurm(p: argparse.ArgumentParser, given: argparse.Namespace) -> Slurm:
    if given.image or given.volume:
        p.error("--image and --volume are for --to kubernetes")
    words = ("mem", "time", "partition", "account", "output")
    for name, value in [(name, getattr(given, name)) for name in words]:
        if len(value.split()) > 1 or value != value.strip():
            p.error(f"--{name} {value!r}: one word is needed")
    for line in given.sbatch:
        if not line.startswith("-") or not line.isprintable():
            p.error(f"--sbatch {line}: an option of sbatch is needed: --sbatch=--constraint=a100")
    return Slurm(
        time=given.time,
        partition=given.partition,
        account=given.account,
        output=given.output,
        lines=tuple(given.sbatch),
        setup=tuple(given.setup),
    )


def _kubernetes(p: argparse.ArgumentParser, given: argparse.Namespace) -> Kubernetes:
    wrong = [
        name for name in ("time", "partition", "account", "sbatch", "setup") if getattr(given, name)
    ]
    if wrong:
        p.error(f"{', '.join('--' + name for name in wrong)}: for --to slurm")
    if not given.image:
        p.error("--image: which container image has dtrun and the program?")
    if not 0 < given.port < 65536:
        p.error(f"--port {given.port}: a number from 1 to 65535 is needed")
    volumes = [text.partition(":")[::2] for text in given.volume]
    for claim, path in volumes:
        if not claim or not path.startswith("/"):
            p.error(f"--volume {claim}:{path}: CLAIM:/PATH is needed")
    return Kubernetes(given.image, given.namespace, given.port, tuple(volumes))
