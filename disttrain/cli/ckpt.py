"""``disttrain ckpt``: looks at checkpoints, proves and changes them.

The work is done in ``distributed.checkpoint.tools`` and ``format_utils``; this prints it. The exit
code is 0 when all is well, 1 when a checkpoint is damaged or two differ, 2 for a wrong call.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sized

from .. import sizes
from ..distributed.checkpoint import format_utils, tools
from ..distributed.checkpoint.filesystem import read_manifest
from ..distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata
from ..distributed.checkpoint.state.flat import paths_of
from ..errors import ConfigError
from . import prove

TAKES_SETTINGS = True  # of the program that prove-resume runs


def _files(some: Sized) -> str:
    return f"{len(some)} file" + "s" * (len(some) != 1)


def configure(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, text: str, *folders: str) -> argparse.ArgumentParser:
        sub = parts.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        for folder in folders:
            sub.add_argument(folder, metavar=folder.upper())
        return sub

    sub = add("ls", "list the checkpoints in a folder, finished or not", "folder")
    sub.add_argument("--json", action="store_true", help="print a JSON array, sizes in bytes")
    sub = add("show", "say what a checkpoint holds", "checkpoint")
    sub.add_argument("key", nargs="?", metavar="KEY", help="print the values under this name")
    sub.add_argument("--pieces", action="store_true", help="say where every piece lies")
    add("verify", "read every byte and compare the checksums", "checkpoint")
    sub = add("diff", "compare two checkpoints bit by bit", "first", "second")
    sub.add_argument("--ignore", action="append", default=[], metavar="KEY",
                     help="leave out what lies under this name")  # fmt: skip
    sub = add("reshard", "write a checkpoint as another number of ranks would", "source", "target")
    sub.add_argument("--ranks", type=int, required=True, metavar="N")
    sub = add("consolidate", "put a checkpoint into one safetensors file", "source", "file")
    sub.add_argument("--key", metavar="KEY", help="only what lies under this name, without it")
    sub = add("import", "make a checkpoint of safetensors files", "source", "target")
    sub.add_argument("--key", metavar="KEY", help="put this name in front of all")
    sub = add("gc", "remove what killed saves have left", "folder")
    sub.add_argument("--dry-run", action="store_true", help="only say what would go")
    sub = add("prove-resume", "show that a resumed run ends as the uninterrupted one", "run")
    prove.configure(sub)


def run(options: argparse.Namespace) -> int:
    if options.settings and options.action != "prove-resume":
        raise ConfigError(f"ckpt {options.action}: unknown arguments {options.settings}")
    return _ACTIONS[options.action](options)


def _ls(options: argparse.Namespace) -> int:
    rows = [tools.summary(path) for path in tools.find(options.folder)]
    if options.json:
        print(json.dumps([vars(row) for row in rows], indent=1))
        return 0
    for row in rows:
        if row.problem:
            print(f"{row.path}  not finished or damaged: {row.problem}")
        else:
            print(
                f"{row.path}  {row.world_size} ranks  {row.tensors} tensors  {row.objects} other "
                f"values  {sizes.size(row.num_bytes)}"
            )
        if row.left_over:
            print(f"    and {sizes.size(row.left_over)} of saves that did not finish (see gc)")
    if not rows:
        print(f"no checkpoints in {options.folder}")
    return 0


def _show(options: argparse.Namespace) -> int:
    if options.key is not None:
        _print_values(tools.values(options.checkpoint, [options.key]), "")
        return 0
    about = read_manifest(options.checkpoint)
    print(f"saved by {about.world_size} ranks in {_files(about.files)}, "
          f"{sizes.size(sum(about.files.values()))}; save {about.save}")  # fmt: skip
    elements = 0
    kinds = about.metadata.state_dict_metadata
    given = [n for n in paths_of(about.metadata) if n in kinds]  # in the order of the state dict
    for name in dict.fromkeys([*given, *kinds]):
        told = kinds[name]
        if not isinstance(told, TensorStorageMetadata):
            print(f"  {name}  (no tensor)")
            continue
        elements += told.size.numel()
        pieces = f"  {len(told.chunks)} pieces" if len(told.chunks) > 1 else ""
        print(f"  {name}  {told.properties.dtype.name} {list(told.size)}{pieces}")
        for chunk in told.chunks if options.pieces else ():
            place = about.metadata.storage_data[MetadataIndex(name, chunk.offsets)]
            print(f"      at {list(chunk.offsets)} of {list(chunk.sizes)}: {place.file} bytes "
                  f"{place.begin} to {place.end}")  # fmt: skip
    print(f"{elements:,} elements")
    return 0


def _print_values(value: dict | float, name: str) -> None:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            _print_values(inner, f"{name}.{key}" if name else str(key))
    else:
        print(f"{name} = {value}")


def _verify(options: argparse.Namespace) -> int:
    about, wrong = tools.verify(options.checkpoint)
    for said in wrong:
        print(said)
    if not wrong:
        values = len(about.metadata.state_dict_metadata)
        size = sizes.size(sum(about.files.values()))
        print(f"whole: {values} values in {_files(about.files)}, {size}")
    return 1 if wrong else 0


def _diff(options: argparse.Namespace) -> int:
    found = tools.diff(options.first, options.second, tuple(options.ignore))
    for name in found.only_first:
        print(f"only in {options.first}: {name}")
    for name in found.only_second:
        print(f"only in {options.second}: {name}")
    for said in found.changed:
        print(said)
    print(f"{found.equal} values are equal bit by bit, {len(found.changed)} differ")
    return 1 if found else 0


def _reshard(options: argparse.Namespace) -> int:
    about = tools.reshard(options.source, options.target, options.ranks)
    print(f"{options.target}: {_files(about.files)}, {sizes.size(sum(about.files.values()))}")
    return 0


def _consolidate(options: argparse.Namespace) -> int:
    format_utils.consolidate(options.source, options.file, options.key)
    print(f"{options.file}: {sizes.size(os.stat(options.file).st_size)}")
    return 0


def _import(options: argparse.Namespace) -> int:
    about = format_utils.import_files(options.source, options.target, options.key)
    print(f"{options.target}: {len(about.state_dict_metadata)} values")
    return 0


def _gc(options: argparse.Namespace) -> int:
    gone = tools.collect(options.folder, options.dry_run)
    for path, size in gone:
        print(f"{'would remove' if options.dry_run else 'removed'} {path}  {sizes.size(size)}")
    print(f"{_files(gone)}, {sizes.size(sum(size for _, size in gone))}")
    return 0


_ACTIONS = {
    "ls": _ls,
    "show": _show,
    "verify": _verify,
    "diff": _diff,
    "reshard": _reshard,
    "consolidate": _consolidate,
    "import": _import,
    "gc": _gc,
    "prove-resume": prove.run,
}
