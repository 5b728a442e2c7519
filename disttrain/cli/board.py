"""``disttrain board``: a page that shows runs, live and ended."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import webbrowser
from pathlib import Path

from ..errors import ConfigError

_PORT = 6007


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUNS_DIR", help="the directory where runs are kept")
    parser.add_argument("--host", default="127.0.0.1", help="127.0.0.1 or ::1, for this machine")
    parser.add_argument("--port", type=int, default=_PORT, help=f"default {_PORT}; 0: any free one")
    parser.add_argument("--open", action="store_true", help="open it in this machine's browser")
    parser.add_argument(
        "--export", metavar="FILE", help="write a page that needs no server, and end"
    )


def run(options: argparse.Namespace) -> int:
    page = importlib.import_module("disttrain.board.page")
    server = importlib.import_module("disttrain.board.server")
    page.plotting_library()  # or say that it is missing
    board = server.Board(options.runs)
    if options.export:
        _write(Path(options.export), page.document(server.snapshot(board)))
        return 0
    listener = server.listen(options.host, options.port)

    def ready(address: str) -> None:
        print(f"disttrain board: {options.runs} at {address}", flush=True)
        print("Ctrl-C ends it", file=sys.stderr, flush=True)
        if options.open:
            webbrowser.open(address)

    server.serve(board, listener, ready)
    return 0


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"--export {path}: cannot be written: {error.strerror}") from None
    print(f"disttrain board: written to {path}")
