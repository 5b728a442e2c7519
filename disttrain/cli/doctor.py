"""``disttrain doctor``."""

from __future__ import annotations

import argparse

from ..doctor import as_json, examine, report


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON array instead of text")


def run(options: argparse.Namespace) -> int:
    findings = examine()
    print(as_json(findings) if options.json else report(findings))
    return 0
