"""``torch.distributed.run``: torchrun's command line, for programs that call it.

The flags are dtrun's, which are torchrun's; what they mean is said once, in
``disttrain_launcher.options.command_line``.
As a command (``python -m torch.distributed.run``) it is dtrun itself.
"""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import runpy
import sys
from collections.abc import Callable
from typing import Any

from disttrain_launcher.options import command_line, devices
from disttrain_launcher.options.rendezvous import BACKENDS, PORTS

from .... import settings
from .launching import LaunchConfig, elastic_launch
from .processes import DefaultLogsSpecs, LogsSpecs, Std
from .stores import get_free_port

_ALIASES = {"training_script": 0, "training_script_args": slice(1, None)}


def get_args_parser() -> argparse.ArgumentParser:
    """dtrun's parser, with PyTorch's default where dtrun finds out by itself: programs read it."""
    made = command_line.parser()
    devices.add_flags(made)
    made.set_defaults(node_rank=0)
    return made


def parse_args(args: list[str] | None) -> argparse.Namespace:
    """A command line as PyTorch's programs read it: with ``training_script`` and its arguments."""
    made = get_args_parser()
    command_line.take_defaults(made, settings.environment())
    given = made.parse_args(sys.argv[1:] if args is None else args)
    for name, part in _ALIASES.items():
        setattr(given, name, given.program[part])
    return given


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """``"2"`` or ``"2:4"`` as two numbers. Raises ``RuntimeError``."""
    parts = nnodes.split(":")
    if len(parts) > 2 or not all(part.isdigit() for part in parts):
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    return int(parts[0]), int(parts[-1])


def determine_local_world_size(nproc_per_node: str) -> int:
    """The number of workers that ``4``, ``cpu``, ``gpu`` or ``auto`` mean here. Raises
    ``ValueError``."""
    try:
        return devices.num_ranks(nproc_per_node, False)
    except ValueError as error:
        raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node} ({error})") from None


def config_from_args(
    args: argparse.Namespace,
) -> tuple[LaunchConfig, Callable[..., Any] | str, list[str]]:
    """What ``elastic_launch`` takes: a configuration, an entry point and its arguments."""
    low, high = (1, 1) if args.standalone else parse_min_max_nnodes(args.nnodes)
    backend, endpoint = args.rdzv_backend, args.rdzv_endpoint
    conf = dict(pair.split("=", 1) for pair in args.rdzv_conf.strip("'").split(",") if pair)
    if backend == "static" or (low == high == 1 and not endpoint):
        backend = "static"
        conf.setdefault("rank", args.node_rank or 0)
    if args.standalone or not endpoint:
        host = "127.0.0.1" if args.standalone else args.master_addr
        port = args.master_port or (
            get_free_port() if high == 1 else PORTS.get(BACKENDS.get(backend, ""), 29400)
        )
        endpoint = f"{host}:{port}"
    filtered = args.local_ranks_filter
    logs = _logs_class(args.logs_specs)(
        args.log_dir, Std.from_str(args.redirects), Std.from_str(args.tee),
        {int(r) for r in filtered.split(",")} if filtered else None,
    )  # fmt: skip
    config = LaunchConfig(
        low, high, determine_local_world_size(args.nproc_per_node), logs, args.rdzv_id, args.role,
        endpoint, backend, conf, max_restarts=int(args.max_restarts),
        monitor_interval=float(args.monitor_interval), start_method=args.start_method,
        local_addr=args.local_addr, signals_to_handle=args.signals_to_handle,
        shutdown_timeout=args.shutdown_timeout,
        event_log_handler=args.event_log_handler or "null",
    )  # fmt: skip
    return (config, *_entry(args))


def _entry(args: argparse.Namespace) -> tuple[Callable[..., Any] | str, list[str]]:
    words = [args.training_script, *args.training_script_args]
    if args.no_python:
        if args.module:
            raise ValueError("Don't use both the '--no-python' flag and the '--module' flag")
        return words[0], words[1:]
    if getattr(args, "run_path", False):
        return run_script_path, words
    return sys.executable, ["-u", *(["-m"] if args.module else []), *words]


def _logs_class(name: str | None) -> type[LogsSpecs]:
    """The class of the entry point ``torchrun.logs_specs`` of that name. Raises ``ValueError``."""
    if not name or name == "default":
        return DefaultLogsSpecs
    found = list(metadata.entry_points(group="torchrun.logs_specs", name=name))
    if not found:
        raise ValueError(
            f"Could not find entrypoint under 'torchrun.logs_specs[{name}]' key; a package that "
            "offers it is needed"
        )
    return found[0].load()


def run_script_path(training_script: str, *training_script_args: str) -> None:
    """Run a script as ``__main__`` in this process."""
    sys.argv = [training_script, *training_script_args]
    runpy.run_path(training_script, run_name="__main__")


def run(args: argparse.Namespace) -> None:
    """Start what ``parse_args`` has read. Raises ``ChildFailedError``."""
    config, command, words = config_from_args(args)
    elastic_launch(config, command)(*words)


def main(args: list[str] | None = None) -> None:
    """torchrun, in this process."""
    run(parse_args(args))
