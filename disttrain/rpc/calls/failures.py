"""Exceptions that were raised on another worker: as bytes, and as exceptions again.

The caller gets the type that was raised, with a text that says where: the worker, the exception as
it shows itself, and its traceback there. A type that cannot be made from a text alone becomes a
class that is both it and ``RuntimeError``, so that either ``except`` finds it; this package's own
errors need none. What is no ``Exception`` (``SystemExit``) would end the caller, who has not asked
for that: it becomes a ``RemoteError``.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import sys
import traceback
from typing import Any

from ...comm.transports.sim.scheduler import Killed
from ...errors import CommError, Deadlock, DisttrainError, RemoteError
from .kept_errors import TEXT, attributes, trace_of
from .packing import Packer
from .workers import WorkerInfo

_log = logging.getLogger(__name__)
_MOST = 1 << 18  # characters of a text
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def pack_failure(worker: WorkerInfo, error: BaseException) -> bytes:
    """``error``, which ``worker`` has met, for whoever called it."""
    kind, text = type(error), _text(worker, error)
    if not isinstance(error, (Killed, Deadlock)):  # of simulated ranks: it is told otherwise
        _log.warning("a call has failed here, as its caller is told:\n%s", text)
    return pickle.dumps((kind.__module__, kind.__qualname__, text, _state(error)))


def unpack_failure(payload: object, packer: Packer) -> Exception:
    """What ``pack_failure`` was given, to be raised here. ``packer``: knows what may be named."""
    module, name, text, state = packer.unpack(payload, [])
    kind = _find(module, name, packer.allowed is None)
    error = RemoteError(text) if kind is None else _make(kind, text)
    error.__dict__[TEXT] = text
    if state is not None:
        try:
            error.__dict__.update(packer.unpack(state, []))
        except Exception:
            return error
    return error


def _text(worker: WorkerInfo, error: BaseException) -> str:
    """What the caller is told. A failure that came from yet another worker brings its text along,
    once: a text that is shown in a text would double its length with every worker on the way."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    earlier = error.__dict__.get(TEXT)
    if isinstance(earlier, str):
        lines = "".join(traceback.format_tb(frames)) + trace_of(error)
        text = f"On {worker}:\n{type(error).__name__}, from another worker, in\n{lines}{earlier}"
    else:
        text = f"On {worker}:\n{_shown(error)}\n{_traceback(error, frames)}"
    if len(text) > _MOST:
        text = f"{text[: _MOST // 2]}\n...\n{text[-_MOST // 2 :]}"
    return text


def _shown(error: BaseException) -> str:
    try:
        return repr(error).replace("\\n", "\n")  # lines as lines
    except Exception as second:
        return f"{type(error).__name__} (which cannot be shown: {second!r})"


def _traceback(error: BaseException, frames: Any) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, frames))
    except Exception:
        return "".join(traceback.format_tb(frames))


def _state(error: BaseException) -> bytes | None:
    """Its attributes, where they can be pickled."""
    state = {name: value for name, value in attributes(error).items() if name != TEXT}
    try:
        return pickle.dumps(state) if state else None
    except Exception:
        return None


def _find(module: str, name: str, may_import: bool) -> type[Exception] | None:
    found: Any
    try:
        found = sys.modules.get(module)
        if found is None and may_import:
            found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception:
        return None
    is_exception = isinstance(found, type) and issubclass(found, Exception)
    return found if is_exception else None


def _make(kind: type[Exception], text: str) -> Exception:
    if issubclass(kind, DisttrainError):
        error: Exception = kind.__new__(kind)
        error.args = (text,)
        return error
    try:
        error = kind(text)
        if str(error) and isinstance(error, kind):
            return error
        problem = "it shows no text"
    except BaseException as failed:
        problem = str(failed)
    text = (
        f"Failed to create original exception type. Error msg was {problem}. "
        f"Original exception on remote side was {text}"
    )
    bases = (kind,) if issubclass(kind, RuntimeError) else (kind, RuntimeError)
    try:
        body = {"__module__": kind.__module__, "__str__": Exception.__str__}
        body |= {"__init__": lambda self, *args: None, "__reduce__": _reduce}
        return type(kind.__name__, bases, body)(text)
    except Exception:
        return RemoteError(text)


def _reduce(self: Exception) -> tuple:
    return _make, (type(self).__bases__[0], self.args[0])


def not_initialized() -> CommError:
    return CommError(
        "RPC has not been initialized. Call torch.distributed.rpc.init_rpc first. (It was not "
        "called, or shutdown() was.)"
    )
