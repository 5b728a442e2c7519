"""Both modes of a module in one file: what it computes in training, and in evaluation.

A program is of one mode. ``save`` keeps the graph of the other one in the metadata, where that
differs (dropout, batch norm), with the few small tensors that it alone has. ``load`` gives the
programs by mode.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import CaptureError, ConfigError, SerializationError
from ..serialize.layout import CODES, NAMES, load_json
from .exported import save_with
from .exporting import export
from .files import load_program, program_json, read_program
from .program import Program

_MODE, _OTHER = "training", "other_mode"
_LIMIT = 1 << 20  # bytes of a text in a file


def programs(module: Any, args: tuple, kwargs: dict) -> dict[bool, Program]:
    """The programs of a module by mode; one that cannot be made is left out, but the mode of now
    must be."""
    now = bool(module.training)
    found = {now: export(module, args, kwargs, dynamic=True, train=None)}
    try:
        found[not now] = export(module, args, kwargs, dynamic=True, train=not now)
    except (CaptureError, ConfigError):
        pass
    return found


def save(found: Mapping[bool, Program], mode: bool, f: Any, texts: Any = None) -> None:
    """Write the program of ``mode``, and that of the other one beside it if the tensors are the
    same."""
    program, other = found[mode], found.get(not mode)
    about = {_MODE: str(mode)}
    if other is not None:
        text = (
            ""
            if _text(other) == _text(program)
            else json.dumps([_text(other), _more(program, other)])
        )
        if len(text.encode()) < _LIMIT:
            about[_OTHER] = text
    save_with(program, f, texts, about)


def load(f: Any) -> tuple[dict[bool, Program], bool]:
    """The programs by mode, and the mode that was saved. A file that says nothing of modes holds
    one program for both."""
    program = load_program(f)
    told, text = program.metadata.pop(_MODE, None), program.metadata.pop(_OTHER, None)
    mode = told == "True"
    found = {mode: program}
    if told is None or text == "":
        found[not mode] = program
    elif text is not None:
        found[not mode] = _beside(program, text)
    return found, mode


def _beside(program: Program, text: str) -> Program:
    """The program of ``text``, with the tensors of ``program``, and its own."""
    where = "load: the program of the other mode"
    told = load_json(text.encode(), where)
    try:
        graph, more = told
        graph = load_json(graph.encode(), where)
        held = {name: t.detach().array for name, t in program.tensors()}
        held.update({name: _array(*parts) for name, parts in more.items()})
        names = [*(pair[0] for pair in graph["state"]), *graph["constants"]]
        arrays = {name: held[name] for name in names}
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise SerializationError(
            f"{where}: {type(error).__name__}: {error}. It is damaged"
        ) from None
    other = read_program(graph, arrays, where)
    other.state.update({n: program.state[n] for n in other.state if n in program.state})
    return other


def _more(program: Program, other: Program) -> dict[str, list]:
    """The tensors that the other one alone has."""
    known = dict(program.tensors())
    return {
        name: [NAMES[a.dtype], list(a.shape), base64.b64encode(a.tobytes()).decode()]
        for name, a in ((n, t.detach().cpu().array) for n, t in other.tensors())
        if name not in known or not _same(known[name].detach().cpu().array, a)
    }


def _array(code: str, shape: list[int], text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), CODES[code]).reshape(shape).copy()


def _text(program: Program) -> str:
    told = {**program_json(program), "metadata": {}}
    return json.dumps(told, separators=(",", ":"), allow_nan=False)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    alike = (a.shape, a.dtype, a.strides) == (b.shape, b.dtype, b.strides)
    return a is b or (alike and a.tobytes() == b.tobytes())


__all__ = ["load", "programs", "save"]
