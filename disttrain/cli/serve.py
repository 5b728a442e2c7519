"""``disttrain serve``: results of saved programs over HTTP."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from ..errors import ConfigError
from ..serve.options import Options, cores

_OPTIONS = (  # name, field, type, help
    ("--max-batch", "max_batch", int, "rows of a batch, at most"),
    ("--queue", "queue", int, "requests that may wait; others get 429"),
    ("--timeout", "timeout", float, "seconds a request has; a client may ask for fewer"),
    ("--grace", "grace", float, "seconds that requests have at the end (SIGTERM)"),
    ("--read-timeout", "patience", float, "seconds in which a request must have come"),
    ("--idle-timeout", "idle", float, "seconds that a connection is kept without a request"),
    ("--max-body", "body", int, "bytes of a request"),
    ("--max-json", "json", int, "bytes of the JSON in it"),
    ("--max-held", "held", int, "bytes of all requests that are here"),
    ("--max-depth", "depth", int, "how deep its JSON may be nested"),
    ("--max-connections", "connections", int, "connections"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="+", metavar="[NAME=]FILE",
        help="saved programs (dt.export); a model's name is its file's, where none is given",
    )  # fmt: skip
    parser.add_argument(
        "--host", default="127.0.0.1", help="default 127.0.0.1; another one needs --token-file"
    )
    parser.add_argument("--port", type=int, default=8000, help="default 8000; 0: any free one")
    parser.add_argument(
        "--workers", type=int, metavar="N", default=cores(),
        help=f"processes that compute (default: one for each core, {cores()})",
    )  # fmt: skip
    parser.add_argument(
        "--onnx", action="store_true", help="the files are ONNX: run by onnxruntime"
    )
    parser.add_argument(
        "--max-delay-ms", type=float, default=1000 * Options.delay, metavar="N",
        help=f"how long a request waits for others (default {1000 * Options.delay:g})",
    )  # fmt: skip
    for name, dest, kind, text in _OPTIONS:
        default = getattr(Options, dest)
        parser.add_argument(
            name, dest=dest, type=kind, default=default, metavar="N",
            help=f"{text} (default {default})",
        )  # fmt: skip
    parser.add_argument("--token-file", metavar="FILE", help="clients must know what it holds")
    parser.add_argument("--certificate", default="", metavar="FILE", help="serve HTTPS, with --key")
    parser.add_argument("--key", default="", metavar="FILE")
    parser.add_argument("--no-watch", action="store_true", help="a replaced file is not loaded")
    parser.add_argument("--log-requests", action="store_true", help="a line for each inference")


def run(options: argparse.Namespace) -> int:
    models = importlib.import_module("disttrain.serve.models")
    made = Options(
        models=_models(options.models),
        **{dest: getattr(options, dest) for _, dest, _, _ in _OPTIONS},
        host=options.host, port=options.port, onnx=options.onnx,
        workers=options.workers, delay=options.max_delay_ms / 1000,
        token=_token(options.token_file), certificate=options.certificate,
        key=options.key, watch=not options.no_watch, log_requests=options.log_requests,
    )  # fmt: skip
    supervisor = importlib.import_module("disttrain.serve.supervisor")
    opener = models.open_onnx
    if not options.onnx:
        opener = models.open_program
        importlib.import_module("disttrain.export")  # so that the workers share it

    def ready(address: str) -> None:
        print(f"disttrain serve: {', '.join(made.models)} at {address}", flush=True)

    version = sys.modules["disttrain"].__version__
    return supervisor.Supervisor(made, opener, version, ready).run()


def _models(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, given, path = word.rpartition("=")
        path = os.path.abspath(path)
        name = name if given else Path(path).stem
        if name in found:
            raise ConfigError(f"serve: two models are named {name!r}; give names with NAME=FILE")
        if not os.path.exists(path):
            raise ConfigError(f"serve: {path}: there is no such file")
        found[name] = path
    return found


def _token(path: str | None) -> bytes:
    if path is None:
        return b""
    files = importlib.import_module("disttrain.comm.store.token_file")
    token = files.read_token_file(path).strip()
    if not token.isascii() or any(byte <= 32 for byte in token):
        raise ConfigError(
            f"serve: --token-file {path}: it stands in a header, so printable ASCII without "
            "spaces is needed: (umask 077; head -c 32 /dev/urandom | base64 > FILE)"
        )
    return token
