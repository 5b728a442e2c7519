"""``dtrun --hostfile hosts train.py``: mpiexec starts one ``dtrun`` on each host of a file, which
then are nodes as those that mpiexec has started by hand (``mpi``).

A host's slots are its ranks. mpiexec reaches other machines by ssh, and finds the same Python and
the same folder there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from disttrain.errors import LaunchError

from ..node.mpi import allowed_as_root, find_mpiexec, is_open_mpi, read_hostfile
from ..options import forwarding

_OURS = ("help", "program", "nproc_per_node", "hostfile", "cluster", "nnodes")


def main(argv: Sequence[str], path: str) -> int:
    """Become mpiexec, for the hosts of that file. Returns where that cannot be."""
    p, of_agent = forwarding.parser(_OURS)
    given = p.parse_args(list(argv))
    for name in ("simulate", "fake", "standalone"):
        if getattr(given, name):
            p.error(f"--{name} with --hostfile {path}: it is for one machine")
    program = forwarding.program(p, given)
    try:
        mpiexec = find_mpiexec()
        if mpiexec is None:
            raise LaunchError(
                f"--hostfile {path}: there is no mpiexec here, which starts dtrun on its "
                "hosts; pip install 'disttrain[mpi]'"
            )
        hosts = read_hostfile(path)
        flags = [*forwarding.words(of_agent, given), *program]
        words = command(mpiexec, is_open_mpi(mpiexec), hosts, given.nproc_per_node, flags)
    except LaunchError as error:
        sys.stderr.write(f"dtrun: {error}\n")
        return 2
    os.execv(words[0], words)


def command(
    mpiexec: str,
    open_mpi: bool,
    hosts: Sequence[tuple[str, int]],
    nproc: str,
    flags: Sequence[str],
) -> list[str]:
    """The command of mpiexec: a program for each host, since hosts may have different slots. They
    are placed in this order.

    Raises ``LaunchError`` where a host is there twice.
    """
    names = [host for host, _ in hosts]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise LaunchError(f"--hostfile: {twice} is there twice; give it slots=N instead")
    where = ["--host", ",".join(f"{name}:1" for name in names), *allowed_as_root()]
    words = [mpiexec, *(where if open_mpi else ["-hosts", ",".join(names), "-ppn", "1"])]
    for number, (_, slots) in enumerate(hosts):
        ranks = ["--nproc-per-node", str(slots or nproc)]
        agent = [
            sys.executable,
            "-m",
            "disttrain_launcher",
            *(["--cluster", "mpi"] * (len(hosts) > 1)),
        ]
        words += [*([":"] if number else []), "-n", "1", *agent, *ranks, *flags]
    return words
