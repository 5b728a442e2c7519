"""``disttrain export RUN -o digits.dtp``: the model of a run, as a file that other programs run.

RUN is the folder of a run, of runs, or of a checkpoint; however many ranks have written that, this
is one process. What the model is, its training program says: a Python file with a function
``trained(run, words)``, which gets that folder and the words of the command line that it does not
know, and returns a ``distributed.checkpoint.Trained``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import sizes
from ..distributed.checkpoint.trained import Trained, load_newest, newest_checkpoint
from ..errors import ConfigError, DisttrainError
from ..export.exporting import export
from ..serialize import gguf, save_characters, save_pretrained
from . import programs

TAKES_SETTINGS = True
NOTE = "model.json"  # the file of a run that may say which program it is of
_SUFFIXES = {"": "dtp", ".dtp": "dtp", ".onnx": "onnx", ".gguf": "gguf"}
_NEEDED = (
    "An export needs one that returns a disttrain.distributed.checkpoint.Trained: how the model is "
    "built, and an example of its inputs. For example\n"
    "    def trained(run, words):\n"
    "        return Trained(build=make_model, args=(dt.zeros(1, 8),), dynamic={0: {0: 'batch'}})\n"
    "(docs/deployment.md; scripts/train.py has one)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the folder of a run, of runs, or of a checkpoint")
    add("-o", "--output", type=Path, required=True, metavar="FILE",
        help="NAME.dtp or a folder NAME: a saved program; NAME.onnx; NAME.gguf")  # fmt: skip
    add("--onnx", action="store_true", help="write NAME.onnx, too")
    add("--gguf", action="store_true", help="write NAME.gguf, too (models of texts)")
    add("--hf", action="store_true", help="write the folder NAME-hf in Hugging Face's layout, too")
    add("--type", default="F16", type=str.upper, choices=("F32", "F16", "BF16", "Q8_0"),
        help="of GGUF's weights")  # fmt: skip
    add("--opset", type=int, metavar="N", help="of ONNX (default: the newest that is known)")
    add("--program", type=Path, metavar="FILE", help=f"the training program (default: "
        f"{programs.NAMES} in a folder above RUN or this one)")  # fmt: skip
    parser.epilog = "Other arguments are the program's own: --data.dir elsewhere"


def run(options: argparse.Namespace) -> int:
    wanted = outputs(options)
    for way, path in wanted:
        _check_place(way, path)
    checkpoint = newest_checkpoint(options.run)
    folder = Path(checkpoint).parent
    program = options.program or find_program(folder)
    told = load_trained(program, folder, options.settings)
    _check_ways(dict(wanted), told)
    with programs.near(program):
        where = options.run if Path(checkpoint) == options.run else folder
        build = _asked(program, told.build, "build()")
        checkpoint, model = load_newest(build, where, told.key)
        if told.pretrained is not None:
            told = replace(told, pretrained=_asked(program, told.pretrained, "pretrained(model)"))
        print(f"model: {checkpoint}, as {program} builds it")
        for way, path in wanted:
            with _explained(program, path):
                _WAYS[way](model, told, path, options)
            print(f"{path}: {sizes.size(_bytes(path))}")
    return 0


@contextlib.contextmanager
def _explained(program: Path, path: Path) -> Iterator[None]:
    """What is raised while ``path`` is written, as errors that say whose it is."""
    try:
        yield
    except DisttrainError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} could not be written: {error}") from error
    except Exception as error:
        if not programs.raised_by(program, error):
            raise
        with programs.blamed(program, "the model is called as its Trained says", "export"):
            raise


def _asked(program: Path, function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function of the program, with errors that say so."""

    def asked(*args: Any) -> Any:
        with programs.blamed(program, f"{name} of its Trained is called", "export"):
            return function(*args)

    return asked


def outputs(options: argparse.Namespace) -> list[tuple[str, Path]]:
    """What is to be written, and where."""
    path: Path = options.output
    first = _SUFFIXES.get(path.suffix.lower())
    if first is None or not path.name:
        raise ConfigError(
            f"-o {str(path)!r}: the name says what is written; needed is NAME.dtp, NAME.onnx, "
            "NAME.gguf, or NAME without a dot for the folder of a saved program"
        )
    found = {first: path}
    for way in ("onnx", "gguf"):
        if getattr(options, way):
            found.setdefault(way, path.with_suffix("." + way))
    if options.hf:
        found["hf"] = path.with_name(path.stem + "-hf")
    return list(found.items())


def _check_place(way: str, path: Path) -> None:
    """Raise before anything is done if nothing can be written there."""
    folder = way == "hf" or (way == "dtp" and not path.suffix)
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: the folder {path.parent} must exist")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{path}: nothing can be written into {path.parent} (no permission)")
    if path.is_dir() is not folder and path.exists():
        here, needed = ("a file", "a folder") if folder else ("a folder", "a file")
        raise ConfigError(f"{path} is {here} that is there; {needed} would be written. Move it")
    if way == "dtp" and folder and path.is_dir() and not _is_program(path):
        raise ConfigError(
            f"{path} is a folder that holds other things than a saved program; name a new one"
        )


def _is_program(folder: Path) -> bool:
    return (folder / "graph.json").is_file() or not any(folder.iterdir())


def _check_ways(wanted: Mapping[str, Path], told: Trained) -> None:
    """Raise before anything is written if one of the files cannot be."""
    if "gguf" in wanted and told.pretrained is None:
        raise ConfigError(
            f"{wanted['gguf']}: GGUF files hold models of known architectures; "
            "Trained(pretrained=...) of the program must give state and config in Hugging Face's "
            "names"
        )
    if "onnx" in wanted:  # (which says so where its package is not installed)
        importlib.import_module("..onnx", __package__)


def find_program(run: Path) -> Path:
    """The training program of the run: of those in the folders above it and above this one the one
    that the run names, else the nearest that has ``trained``, else the nearest."""
    places = [[*programs.above(place / "_")] for place in (run, Path.cwd())]
    named = _named(run)
    for program in (p for place in places for p in place):
        if named is not None and program.resolve() == named.resolve():
            return program
    for place in places:
        if place:
            return next(filter(_answers, place), place[0])
    who = f"; it names {named}" if named is not None else ""
    raise ConfigError(
        f"there is no {programs.NAMES} in the folders above {run} or this one{who}; name the "
        "program with --program"
    )


def _answers(program: Path) -> bool:
    try:
        return programs.binds(program, "trained")
    except ConfigError:
        return False


def _named(run: Path) -> Path | None:
    """The program that a run says it is of. It is not run for that alone."""
    try:
        told = json.loads((run / NOTE).read_text())
        return Path(told["program"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def load_trained(program: Path, run: Path, words: list[str]) -> Trained:
    """What ``trained(run, words)`` of the program returns."""
    found = programs.call(program, "trained", (str(run), words), "export", _NEEDED)
    if not isinstance(found, Trained):
        raise ConfigError(
            f"{program}: trained(run, words) returned {type(found).__name__}, not a Trained. "
            f"{_NEEDED}"
        )
    return found


def _bytes(path: Path) -> int:
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    return sum(p.stat().st_size for p in files)


def _dtp(model: Any, told: Trained, path: Path, options: argparse.Namespace) -> None:
    export(model, told.args, told.kwargs, dynamic=told.dynamic).save(path)


def _onnx(model: Any, told: Trained, path: Path, options: argparse.Namespace) -> None:
    program = export(model, told.args, told.kwargs, dynamic=told.dynamic)
    onnx = importlib.import_module("..onnx", __package__)
    onnx.export(program, f=path, opset_version=options.opset)


def _pretrained(model: Any, told: Trained) -> tuple[Any, Any]:
    return (model, None) if told.pretrained is None else told.pretrained(model)


def _hf(model: Any, told: Trained, path: Path, options: argparse.Namespace) -> None:
    state, config = _pretrained(model, told)
    save_pretrained(state, path, config)
    if told.vocabulary is not None and not isinstance(told.vocabulary, gguf.Vocabulary):
        save_characters(told.vocabulary, path)


def _gguf(model: Any, told: Trained, path: Path, options: argparse.Namespace) -> None:
    state, config = _pretrained(model, told)
    if config.get("activation_function", "gelu_new") != "gelu_new":
        print("note: llama.cpp computes gelu by tanh, which this model was not trained with")
    whole = gguf.from_pretrained(state, config, vocabulary=told.vocabulary, name=path.stem)
    gguf.save(whole, path, type=options.type)


_WAYS: dict[str, Callable[[Any, Trained, Path, argparse.Namespace], None]] = {
    "dtp": _dtp,
    "onnx": _onnx,
    "gguf": _gguf,
    "hf": _hf,
}
