"""The flags of a simulated cluster, and the words that ask for one again.

What they mean is read in ``job`` (it needs ``disttrain``); here they are text.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Flags:
    """As given on the command line; empty where nothing was."""

    seed: int = 0
    hosts: int = 0
    latency: str = ""
    bandwidth: str = ""
    local_latency: str = ""
    local_bandwidth: str = ""
    algorithm: str = "auto"
    compute: str = ""
    straggler: tuple[str, ...] = ()
    kill: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    delay: tuple[str, ...] = ()
    explore: int = 0
    replay: str = ""
    verdict: str = ""
    timeline: str = ""
    chakra: str = ""


def add_flags(p: argparse.ArgumentParser) -> None:
    """The group of flags that belong to ``--simulate``."""
    add = p.add_argument_group("a simulated cluster (docs/simulate.md)").add_argument
    add("--simulate", type=int, default=0, metavar="N",
        help="run N ranks as threads of one process, on a simulated cluster")  # fmt: skip
    add("--seed", type=int, default=0, help="which schedule: the same one each time")
    add("--hosts", type=int, default=0, metavar="H", help="spread the ranks over H hosts")
    add("--latency", default="", metavar="TIME", help="of links between hosts (of all, without "
        "--hosts): 20us")  # fmt: skip
    add("--bandwidth", default="", metavar="RATE", help="of the same: 10GB/s")
    add("--local-latency", default="", metavar="TIME", help="inside a host")
    add("--local-bandwidth", default="", metavar="RATE", help="inside a host")
    add("--algorithm", default="auto", choices=("auto", "ring", "doubling", "tree", "direct"),
        help="of collectives between hosts")  # fmt: skip
    add("--compute", default="", metavar="TIME", help="how long a program computes between two "
        "calls: measured (the default), or 5ms")  # fmt: skip
    add("--straggler", action="append", default=[], metavar="R=F",
        help="rank R computes F times as long: 3=2x")  # fmt: skip
    for kind, what in (
        ("kill", "kill rank R at its N-th call of a verb: 5@all_reduce:17"),
        ("drop", "lose what it sends in that call"),
        ("delay", "send that so much later: 5@all_reduce:17=50ms"),
    ):
        more = "=TIME" if kind == "delay" else ""
        add(f"--{kind}", action="append", default=[], metavar=f"R@VERB:N{more}", help=what)
    add("--explore", type=int, default=0, metavar="K",
        help="try K schedules and faults, then up to K orders of messages; show the simplest that "
        "fails, or say that all orders were tried")  # fmt: skip
    add("--replay", default="", metavar="ORDER",
        help="let messages meet as in an order that --explore has told")  # fmt: skip
    add("--verdict", default="", metavar="FILE", help="where --explore writes what it has found, "
        "as JSON")  # fmt: skip
    add("--fake", type=int, default=0, metavar="N",
        help="instead: one process plays a rank of N without peers")  # fmt: skip
    add("--fake-rank", type=int, default=0, metavar="R", help="which rank --fake plays")
    add("--timeline", default="", metavar="FILE", help="where the Chrome trace goes")
    add("--chakra", default="", metavar="NAME",
        help="write MLCommons' Chakra traces, too: NAME.RANK.et")  # fmt: skip


def flags_of(given: argparse.Namespace) -> Flags:
    """The flags of a parsed command line."""
    found = {f.name: getattr(given, f.name) for f in fields(Flags)}
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
    return Flags(**values)


def words_of(flags: Flags) -> list[str]:
    """The command line that gives ``flags`` again."""
    words: list[str] = []
    for f in fields(Flags):
        value = getattr(flags, f.name)
        if value == f.default:
            continue
        flag = "--" + f.name.replace("_", "-")
        for each in value if isinstance(value, tuple) else (value,):
            words += [flag, str(each)]
    return words
