"""``disttrain plan CONFIG --world 8``: finds the program of a config and prints its plan; with
``--cluster FILE`` instead, how fast each layout is on those machines.

The program is a Python file with a function ``subject(words)``, which gets the words of its own
command line and returns a ``distributed.planning.Subject``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..distributed import planning
from ..errors import ConfigError
from ..sizes import parse_size
from . import programs

TAKES_SETTINGS = True
_NEEDED = (
    "A plan needs one that returns a disttrain.distributed.planning.Subject: how the model is "
    "built, its loss on a batch, the size of that, and the optimizer. For example\n"
    "    def subject(words):\n"
    "        return planning.Subject(build=make_model, loss=lambda model, batch: ...,\n"
    "                                batch_size=64, optimizer=dt.optim.AdamW)\n"
    "(docs/strategies.md; scripts/train.py has one)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="the program's TOML file")
    parser.add_argument("--world", type=int, metavar="N", help="number of ranks")
    parser.add_argument("--hosts", type=int, default=1, metavar="N", help="they run on so many")
    parser.add_argument("--tensor", type=int, default=0, metavar="N", help="ranks of one layer")
    parser.add_argument("--memory", metavar="SIZE", help="of a rank, like 4GB: say what fits")
    parser.add_argument("--json", action="store_true", help="print a JSON array, sizes in bytes")
    parser.add_argument(
        "--program",
        type=Path,
        metavar="FILE",
        help=f"the program (default: {programs.NAMES} in a folder above CONFIG)",
    )
    _configure_cluster(parser)
    parser.epilog = "Other arguments are the program's own: --model.width 256"


def _configure_cluster(parser: argparse.ArgumentParser) -> None:
    """How fast, on which machines."""
    add = parser.add_argument_group("step times on a cluster (docs/plan.md)").add_argument
    add("--cluster", type=Path, metavar="FILE", help="the machines: configs/clusters/*.toml")
    add("--nodes", type=int, metavar="N", help="so many of them")
    add("--batch", type=int, metavar="N", help="sequences of a step, of all ranks")
    add("--seq", type=int, metavar="N", help="tokens of a sequence")
    add("--precision", default="", metavar="TYPE", help="bf16, fp8, fp32; bf16_amp over float32")
    add("--software", default="default", choices=planning.STACKS, help="whose kernels and host")
    add("--top", type=int, default=10, metavar="N", help="show so many strategies")
    add("--play", type=int, default=3, metavar="N", help="play so many with contention")
    add("--chakra", default="", metavar="NAME", help="write the best one's traces: NAME.RANK.et")


def run(options: argparse.Namespace) -> int:
    if options.cluster is not None:
        return _run_cluster(options)
    if options.world is None:
        raise ConfigError("--world N (memory of N ranks) or --cluster FILE (step times) is needed")
    memory = None if options.memory is None else parse_size(options.memory)
    program = options.program or programs.find_program(options.config)
    subject = load_subject(program, ["--config", str(options.config), *options.settings])
    needs = planning.needs_of(subject, options.world, options.hosts, options.tensor)
    print(planning.as_json(needs, memory) if options.json else planning.table(needs, memory))
    return 0


def _run_cluster(options: argparse.Namespace) -> int:
    model, training = planning.read_model(options.config)
    if model is None or options.program is not None:
        program = options.program or programs.find_program(options.config)
        subject = load_subject(program, ["--config", str(options.config), *options.settings])
        model, seq = planning.transformer_of_program(subject)
        training = {"batch": subject.batch_size, "seq": seq}
    elif options.settings:
        raise ConfigError(f"{options.settings[0]}: unknown; {options.config} has no program")
    question = planning.Question(
        options.cluster,
        model,
        training.get("batch", 0) if options.batch is None else options.batch,
        training.get("seq", 0) if options.seq is None else options.seq,
        options.nodes,
        options.precision or training.get("precision", "bf16"),
        options.software,
        options.play,
        options.top,
        options.chakra,
    )
    found = planning.answer(question, not options.json)
    print(found.text)
    return 0 if found.fits else 1


def load_subject(program: Path, words: list[str]) -> Any:
    """What ``subject(words)`` of the program returns. A program without one is not run: it would
    train."""
    found = programs.call(program, "subject", (words,), "plan", _NEEDED)
    if not isinstance(found, planning.Subject):
        raise ConfigError(
            f"{program}: subject(words) returned {type(found).__name__}, not a Subject. {_NEEDED}"
        )
    return found
