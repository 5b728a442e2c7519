"""Functions of a program as one operation each, now or in a traced function: with gradients of
their own, with values computed again for gradients; and Python's doings at every run: calls,
printing."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .. import tree
from ..arrays import texts
from ..autograd.pulled import explained
from ..autograd.tape import GradientTape
from ..context import thread
from ..core.backward.checkpoint import checkpoint
from ..core.grad_mode import enable_grad
from .function import Spec
from .graph import CURRENT, effect, outside
from .operations import Operations

_STREAMS = {"stdout": lambda: sys.stdout, "stderr": lambda: sys.stderr}


def _whole(made: Operations, f: Callable, run: Callable[..., tuple[Any, Callable]]) -> Callable:
    """``f`` as one operation: ``run(of_tensors, *values)`` gives its results, and how they are put
    together. What it raises stays as it is."""

    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        rebuild: list[Callable] = []
        failed: list[Exception] = []

        def call(*values: Any) -> Any:
            failed.clear()
            try:
                outs, *rebuild[:] = run(lambda *ts: f(*ts, **kwargs), *values)
            except Exception as error:
                failed.append(error)  # the program's own
                raise
            return outs

        try:
            outs = made.execute("IdentityN", call, [made.tensor(a) for a in args], f.__name__)
        except Exception as error:
            raise (failed[0] if failed else error) from None
        return rebuild[0](list(outs) if isinstance(outs, tuple) else [outs])

    return function


def explaining(made: Operations, f: Callable) -> Callable:
    """``f(*args)`` gives (its result, the function of its gradients)."""

    def run(fn: Callable, *values: Any) -> tuple:
        with outside():  # recorded: the function of gradients may be differentiated
            outs, rebuild = explained(fn, values, made.cover, made.inner)
        return tuple(outs), rebuild

    return _whole(made, f, run)


def recomputed(made: Operations, f: Callable) -> Callable:
    """``f`` whose intermediate values are computed again for gradients."""

    def run(fn: Callable, *values: Any) -> tuple:
        form: list[Callable] = []
        tapes: list[GradientTape] = []

        def call(*given: Any) -> tuple:
            # (what runs again is recorded, and reads the same leaves of cells)
            with outside(), made.recording(), _reading(tapes):
                leaves, form[:] = _parts(fn(*map(made.cover, given)))
            return tuple(map(made.inner, leaves))

        return checkpoint(call, *values, use_reentrant=False), form[0]

    return _whole(made, f, run)


@contextlib.contextmanager
def _reading(known: list[GradientTape]) -> Iterator[None]:
    """Let a tape note what cells are read, where there are tapes; let it stand by the second time,
    when they may be gone."""
    if known:
        thread.tapes.append(known[0])
        try:
            yield
        finally:
            thread.tapes.remove(known[0])
    elif thread.tapes:
        known.append(GradientTape())
        with known[0]:
            yield
    else:
        yield


def _parts(value: Any) -> tuple[list, list]:
    leaves, rebuild = tree.flatten(value)
    return leaves, [rebuild]


def called(
    made: Operations, fn: Callable, values: Iterable, specs: Sequence[Spec], alone: bool = False,
    kind: str = "PythonCall",
) -> Any:  # fmt: skip
    """``fn`` as Python runs it, at every run. ``specs``: what it gives, in a list unless it gives
    one value ``alone``."""

    def call(*given: Any) -> Any:
        if CURRENT.get() is not None:
            found = [spec.example(1) for spec in specs]
        else:
            with enable_grad():  # for its own tapes
                out = fn(*map(made.cover, given))
            rows = out if isinstance(out, (list, tuple)) else [out]
            pairs = zip(rows, specs, strict=False)
            found = [made.inner(row, spec.dtype) for row, spec in pairs]
        return found[0] if alone else found

    return made.execute(kind, call, [made.tensor(v) for v in values])


class _Shown(str):
    """A text that stands in nested structures as it is."""

    __repr__ = str.__str__


def show(
    made: Operations, values: Sequence[Any], edge: int = 3, sep: str = " ", end: str = "\n",
    stream: Any = "stdout", kind: str = "Print",
) -> None:  # fmt: skip
    """Print nested values at every run: of tensors the first and last ``edge`` of each
    dimension."""
    leaves, rebuild = tree.flatten(list(values))
    at = [i for i, v in enumerate(leaves) if made.is_tensor(v)]

    def call(*given: Any) -> None:
        now = list(leaves)
        for i, v in zip(at, given, strict=True):
            array = v.detach().numpy() if hasattr(v, "detach") else v
            now[i] = _Shown(texts.brief(array, edge))
        to = _STREAMS[stream]() if isinstance(stream, str) else stream
        to.write(sep.join(str(v) for v in rebuild(now)) + end)
        to.flush()

    effect(kind, call, [made.tensor(leaves[i]) for i in at])
