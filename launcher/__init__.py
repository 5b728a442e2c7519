"""The launcher: ``dtrun`` from the command line, ``launch`` from Python. Knows no tensors.

``launch`` is loaded when it is first asked for: ``dtrun --help`` needs none of what it needs, and
the command must set thread counts before numpy is loaded. From above:

testing            ranks in pytest
command            the command line's processes: front, fake ranks, ``launch``; what ranks load
nodes | simulated |
submit | starters  several machines; ranks as threads; batch scripts; host files and Ray
node               the agent: ranks of one machine started, heard, watched, ended
debugging          ranks in Python's debugger, and the terminals that they are given
registry | worker  where nodes find each other; what becomes of a process that is a rank
plan               decisions, pure: who takes part, what follows when a rank ends
options            what may be asked of dtrun
clusters           which node of how many this is: Slurm, MPI, Kubernetes
"""

import importlib
from typing import Any

__all__ = ["launch"]


def __getattr__(name: str) -> Any:
    if name == "launch":
        return importlib.import_module("disttrain_launcher.command.launch").launch
    raise AttributeError(f"module 'disttrain_launcher' has no attribute {name!r}")
