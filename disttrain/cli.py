"""The command ``disttrain``. Parses the command line; the work is done elsewhere."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .doctor import as_json, examine, report


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with ``argv`` (default: ``sys.argv``) and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="disttrain",
        description="Distributed training. To start a script on several ranks, see: dtrun --help",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    doctor = commands.add_parser(
        "doctor",
        help="say what this machine has, and what each missing thing would enable",
        description="Say what this machine has, and what each missing thing would enable.",
    )
    doctor.add_argument("--json", action="store_true", help="print a JSON array instead of text")
    options = parser.parse_args(argv)
    findings = examine()
    print(as_json(findings) if options.json else report(findings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
