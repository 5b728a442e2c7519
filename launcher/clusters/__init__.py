"""Clusters: one file for each environment that starts ``dtrun`` on the nodes of a job.

Each has ``matches(env)``: does this process run there, as one of several nodes? and ``place(env)``:
the answers, a ``Place``. Adding an environment is adding a file, and its name to the table. Nothing
here loads numpy: the number of its threads follows from the options.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping

from . import slurm
from .placement import Place

__all__ = ["NAMES", "Place", "add_flags", "find", "is_known"]

DETECTED = ("slurm", "mpi", "kubernetes")  # in the order in which `auto` asks
NAMES = ("auto", "local", *DETECTED, "ray")


def add_flags(p: argparse.ArgumentParser) -> None:
    """The flag that says who answers."""
    p.add_argument(
        "--cluster",
        default="auto",
        metavar="NAME",
        help="who says which node this is: auto, local, slurm, mpi, kubernetes, ray[://HOST:PORT]",
    )


def is_known(name: str) -> bool:
    """Is that a value of ``--cluster``?"""
    return name in NAMES or name.startswith("ray://")


def find(name: str, env: Mapping[str, str]) -> Place:
    """The place of this node, by the cluster of that name; "auto" is the one that has started this
    process on several nodes, if any.

    Raises ``ValueError`` where the environment does not say what is needed.
    """
    if name not in ("auto", "local", *DETECTED):
        raise ValueError(f"--cluster {name}: Ray starts agents itself, and needs no other starter")
    wanted = DETECTED if name == "auto" else (name,)
    for cluster in wanted:
        module = importlib.import_module(f".{cluster}", __name__)
        if name != "auto" or module.matches(env):
            place = module.place(env)
            assert isinstance(place, Place)
            return place
    return Place(hint=slurm.hint(env)) if name == "auto" else Place()
