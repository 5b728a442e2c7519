"""``disttrain plan CONFIG --world 8``: finds the program of a config and prints its plan.

The program is a Python file with a function ``subject(words)``, which gets the words of its own
command line and returns a ``distributed.planning.Subject``.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any

from ..distributed import planning
from ..errors import ConfigError
from ..sizes import parse_size

TAKES_SETTINGS = True
NAMES = ("train.py", "scripts/train.py")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="the program's TOML file")
    parser.add_argument("--world", type=int, required=True, metavar="N", help="number of ranks")
    parser.add_argument("--hosts", type=int, default=1, metavar="N", help="they run on so many")
    parser.add_argument("--tensor", type=int, default=0, metavar="N", help="ranks of one layer")
    parser.add_argument("--memory", metavar="SIZE", help="of a rank, like 4GB: say what fits")
    parser.add_argument("--json", action="store_true", help="print a JSON array, sizes in bytes")
    parser.add_argument(
        "--program",
        type=Path,
        metavar="FILE",
        help=f"the program (default: {' or '.join(NAMES)} in a folder above CONFIG)",
    )
    parser.epilog = "Other arguments are the program's own: --model.width 256"


def run(options: argparse.Namespace) -> int:
    memory = None if options.memory is None else parse_size(options.memory)
    program = options.program or find_program(options.config)
    subject = load_subject(program, ["--config", str(options.config), *options.settings])
    needs = planning.needs_of(subject, options.world, options.hosts, options.tensor)
    print(planning.as_json(needs, memory) if options.json else planning.table(needs, memory))
    return 0


def find_program(config: Path) -> Path:
    """The program that ``config`` belongs to: the nearest one in the folders above it."""
    if not config.is_file():
        raise ConfigError(f"{config}: there is no such file; a TOML file is needed")
    for folder in config.resolve().parents:
        for name in NAMES:
            if (folder / name).is_file():
                return folder / name
    raise ConfigError(
        f"there is no {' or '.join(NAMES)} in the folders above {config}; name the program "
        "with --program"
    )


def load_subject(program: Path, words: list[str]) -> Any:
    """What ``subject(words)`` of the program returns."""
    if not program.is_file():
        raise ConfigError(f"--program {program}: there is no such file")
    sys.path.insert(0, str(program.resolve().parent))
    try:
        names = runpy.run_path(str(program), run_name="disttrain_planned")
        if "subject" not in names:
            raise ConfigError(
                f"{program} has no function subject(words), which says what is planned; see "
                "disttrain.distributed.planning.Subject"
            )
        return names["subject"](words)
    finally:
        sys.path.pop(0)
