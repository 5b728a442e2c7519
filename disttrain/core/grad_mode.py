"""no_grad, enable_grad, set_grad_enabled, inference_mode: per thread, nestable, also decorators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, Self, TypeVar, overload

from ..context import thread
from ..trace import warn

Fn = TypeVar("Fn", bound=Callable[..., Any])


class _Mode:
    """Set fields of the thread's state while a block or a decorated function runs."""

    fields: dict[str, bool]

    def __init__(self) -> None:
        self._before: list[dict[str, bool]] = []

    def _fresh(self) -> _Mode:
        return type(self)()

    def __enter__(self) -> Self:
        self._before.append({k: getattr(thread, k) for k in self.fields})
        set_state(self.fields)
        return self

    def __exit__(self, *exc: object) -> None:
        set_state(self._before.pop())

    def __call__(self, fn: Fn) -> Fn:
        if inspect.isclass(fn):
            warn(
                "Decorating classes is deprecated and will be disabled in future versions: the "
                "mode holds while an object is made, and not in its methods; decorate those",
                FutureWarning,
            )
        elif inspect.isgeneratorfunction(fn):

            @functools.wraps(fn)
            def generator(*args: object, **kwargs: object) -> Any:
                return (yield from _resumed(fn(*args, **kwargs), self._fresh))

            return generator  # type: ignore[return-value]

        @functools.wraps(fn)
        def wrapped(*args: object, **kwargs: object) -> Any:
            with self._fresh():
                return fn(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def _resumed(it: Generator, mode: Callable[[], _Mode]) -> Generator:
    """The generator ``it``, each of its steps in a ``mode()`` of its own."""
    step: Callable = next
    given: tuple = ()
    while True:
        try:
            with mode():
                value = step(it, *given) if step is next else step(*given)
        except StopIteration as stop:
            return stop.value
        try:
            step, given = it.send, ((yield value),)
        except GeneratorExit:
            with mode():
                it.close()
            raise
        except BaseException as error:
            step, given = it.throw, (error,)


def set_state(fields: dict[str, bool]) -> None:
    """Set fields of this thread's state, and what follows from them."""
    for name, value in fields.items():
        setattr(thread, name, value)
    thread.refresh()


class no_grad(_Mode):  # noqa: N801
    """Record nothing."""

    fields = {"grad_enabled": False}

    @overload
    def __new__(cls, fn: None = None) -> Self: ...
    @overload
    def __new__(cls, fn: Fn) -> Fn: ...  # type: ignore[misc]
    def __new__(cls, fn: Callable | None = None) -> Any:
        mode = object.__new__(cls)
        if fn is None:
            return mode
        mode.__init__()  # type: ignore[misc]
        return mode(fn)

    def __init__(self, fn: Callable | None = None) -> None:
        super().__init__()


class enable_grad(no_grad):  # noqa: N801
    """Record again inside ``no_grad``."""

    fields = {"grad_enabled": True}


class inference_mode(_Mode):  # noqa: N801
    """As ``no_grad``; ``inference_mode(False)`` is the contrary, inside of one. Tensors made inside
    are ordinary ones, which may be used and written to everywhere."""

    def __init__(self, mode: bool | Callable = True) -> None:
        super().__init__()
        self.enabled = bool(mode)
        self.fields = {"grad_enabled": not self.enabled, "inference": self.enabled}

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...
    @overload
    def __new__(cls, mode: Fn) -> Fn: ...  # type: ignore[misc]
    def __new__(cls, mode: bool | Callable = True) -> Any:
        out = object.__new__(cls)
        if callable(mode):
            out.__init__()  # type: ignore[misc]
            return out(mode)
        return out

    def _fresh(self) -> inference_mode:
        return inference_mode(self.enabled)


class set_grad_enabled(_Mode):  # noqa: N801
    """Switch recording at once; as a context manager, until the end of the block."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.fields = {"grad_enabled": bool(mode)}
        self._at_call = thread.grad_enabled
        set_state(self.fields)

    def _fresh(self) -> set_grad_enabled:
        return set_grad_enabled(self.fields["grad_enabled"])

    def __enter__(self) -> Self:
        set_state(self.fields)
        return self

    def __exit__(self, *exc: object) -> None:
        set_state({"grad_enabled": self._at_call})

    def __call__(self, fn: Fn) -> Fn:
        set_state({"grad_enabled": self._at_call})
        return super().__call__(fn)


def is_grad_enabled() -> bool:
    """Whether operations of this thread are recorded."""
    return thread.grad_enabled


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside ``inference_mode``."""
    return thread.inference


class set_detect_anomaly(_Mode):  # noqa: N801
    """Check every gradient for nan, and remember the forward line of every operation."""

    def __init__(self, mode: bool = True, check_nan: bool = True) -> None:
        super().__init__()
        self.fields = {"anomaly": bool(mode), "check_nan": bool(check_nan)}
        self._at_call = {k: getattr(thread, k) for k in self.fields}
        set_state(self.fields)

    def _fresh(self) -> set_detect_anomaly:
        return set_detect_anomaly(self.fields["anomaly"], self.fields["check_nan"])

    def __exit__(self, *exc: object) -> None:
        set_state(self._at_call)


class detect_anomaly(_Mode):  # noqa: N801
    """``set_detect_anomaly(True)`` for a block."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__()
        self.fields = {"anomaly": True, "check_nan": bool(check_nan)}

    def _fresh(self) -> detect_anomaly:
        return detect_anomaly(self.fields["check_nan"])


def is_anomaly_enabled() -> bool:
    """Whether this thread detects anomalies."""
    return thread.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether that includes a check of every gradient for nan."""
    return thread.check_nan


def is_multithreading_enabled() -> bool:
    """What ``set_multithreading_enabled`` was told on this thread."""
    return thread.multithreading


class set_multithreading_enabled(_Mode):  # noqa: N801
    """Whether a backward pass may use several threads. It uses the calling one in any case; the
    setting is kept for programs that make it."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.fields = {"multithreading": bool(mode)}
        self._at_call = thread.multithreading
        set_state(self.fields)

    def _fresh(self) -> set_multithreading_enabled:
        return set_multithreading_enabled(self.fields["multithreading"])

    def __exit__(self, *exc: object) -> None:
        set_state({"multithreading": self._at_call})
