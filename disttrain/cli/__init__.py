"""The command ``disttrain``: one file per subcommand, which is loaded when it is asked for.

A subcommand's module has ``configure(parser)``, which adds its arguments, and ``run(options)``,
which returns the exit code; words that the parser does not know are ``options.settings`` where the
module says ``TAKES_SETTINGS``. The work is done elsewhere.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence

from .. import outputs
from ..errors import DisttrainError

COMMANDS = {
    "attach": "sit at a rank of a running job that has stopped in the debugger",
    "blackbox": "show what a job's ranks did last, also after it has died",
    "board": "serve a page on this machine that shows runs: curves, ranks, timelines",
    "ckpt": "list, show, verify, compare, reshard, consolidate and collect checkpoints",
    "diff": "say which operation of two recorded runs, or ranks, differs first",
    "doctor": "say what this machine has, and what each missing thing would enable",
    "export": "write the model of a run as a saved program, ONNX, GGUF or a folder for others",
    "jobs": "list the jobs of this user that run on this machine",
    "pdb": "stop a rank of a running job in the debugger, at its next line of Python",
    "pipeline": "prove that a pipeline schedule ends, with which memory, or show why not",
    "plan": "say what each parallel strategy needs per rank, without running anything",
    "replay": "run one rank of a recorded run again, alone, under the debugger",
    "serve": "answer requests for the results of saved programs over HTTP (KServe's protocol, V2)",
    "stacks": "print where Python stands in all ranks of a running job, without stopping them",
    "top": "show a running job live: what each rank does, and for whom it waits",
}


def command() -> int:
    """The command, as a process: it ends quietly when its reader has gone, or at Ctrl-C."""
    try:
        return outputs.command(main, "disttrain")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with ``argv`` (default: ``sys.argv``) and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="disttrain",
        description="Distributed training. To start a script on several ranks, see: dtrun --help",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    asked = words[0] if words and words[0] in COMMANDS else None
    module = None
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name == asked:
            module = importlib.import_module(f".{name}", __name__)
            module.configure(sub)
    options, unknown = parser.parse_known_args(words)
    assert module is not None  # argparse has refused everything else
    if unknown and not getattr(module, "TAKES_SETTINGS", False):
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.settings = unknown
    try:
        return module.run(options)
    except DisttrainError as error:
        print(f"disttrain {asked}: {error}", file=sys.stderr)
        return 2
