"""The options of ``dtrun`` as another ``dtrun`` is to get them: by a batch script, by an agent of
Ray's. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence

from .. import clusters
from . import command_line, devices
from .parsing import program_of


def parser(without: Collection[str]) -> tuple[argparse.ArgumentParser, list[argparse.Action]]:
    """The parser of ``dtrun``, and those of its options that may be handed on: not the ones whose
    values are named ``without``."""
    p = command_line.parser()
    devices.add_flags(p)
    clusters.add_flags(p)
    return p, [action for action in p._actions if action.dest not in without]


def starter(given_words: Sequence[str], env: Mapping[str, str]) -> tuple[str, str]:
    """Who starts the job's agents, where it is not for somebody else to do: the name of a file of
    ``clusters``, and what it is given: ("ray", "ray" or "ray://..."), ("hostfile", the file); or
    ("", "")."""
    cluster, backend = env.get("PET_CLUSTER", "auto"), env.get("PET_BACKEND", "")
    if not any("ray" in text or "host" in text for text in (*given_words, cluster)):
        return "", ""  # as nearly always, without parsing
    given = parser(())[0].parse_args(list(given_words))
    cluster = str(cluster if given.cluster == "auto" else given.cluster)
    if cluster == "ray" or cluster.startswith("ray://"):
        return "ray", cluster
    if given.hostfile and (given.backend or backend) != "mpi":
        return "hostfile", given.hostfile
    return "", ""


def words(actions: Sequence[argparse.Action], given: argparse.Namespace) -> list[str]:
    """The options as they were given; nothing of those that were not."""
    return [word for action in actions for word in _words(action, getattr(given, action.dest))]


def _words(action: argparse.Action, value: object) -> list[str]:
    if value == action.default:
        return []
    flag = next(word for word in action.option_strings if word.startswith("--"))
    if action.nargs == 0:
        return [flag]
    if action.nargs == "?":
        return [f"{flag}={value}"]
    values = value if isinstance(value, list) else [value]
    return [word for one in values for word in (flag, str(one))]


def program(p: argparse.ArgumentParser, given: argparse.Namespace) -> list[str]:
    """The program and its arguments, as another ``dtrun`` is to get them; a usage error where there
    is none."""
    found = program_of(given.program)
    if not found:
        p.error(f"no program given; needed is a script: {p.prog} --nproc-per-node 4 train.py")
    return [found[0], "--", *found[1:]] if found[1:2] == ["--"] else found


def nodes(p: argparse.ArgumentParser, text: str) -> tuple[int, int]:
    """Fewest and most nodes; a usage error where ``text`` does not say them."""
    low, _, high = text.partition(":")
    if not low.isdigit() or not (high or low).isdigit():
        p.error(f"--nnodes {text}: a number or MIN:MAX is needed")
    fewest, most = int(low), int(high or low)
    if not 1 <= fewest <= most:
        p.error(f"--nnodes {text}: 1 <= MIN <= MAX is needed")
    return fewest, most
