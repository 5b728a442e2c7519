"""``torch.profiler``'s profiler: steps, a schedule, and what is done with each record."""

from __future__ import annotations

import enum
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from ..errors import ConfigError
from . import chrome
from .recording import profile
from .schedule import RECORDING, ProfilerAction, always


class ProfilerActivity(enum.Enum):
    """What a ``Profiler`` may watch."""

    CPU = 0


class DeviceType(enum.Enum):
    """Where an event ran."""

    CPU = 0
    CUDA = 1


def supported_activities() -> set[ProfilerActivity]:
    """What can be watched here."""
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    """Whether operations can be recorded: always."""
    return True


class Profiler(profile):
    """``torch.profiler.profile``: the same record, in steps.

    ``schedule(step)`` says what is done in each step (None: all are recorded). ``on_trace_ready``
    is called with the profiler when a record has ended: after a step of RECORD_AND_SAVE, and at the
    end. ``activities`` may name the CPU only. ``execution_trace_observer`` runs while steps are
    recorded. ``acc_events``: keep the events of earlier cycles, too.
    """

    def __init__(
        self, *, activities: Iterable | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Profiler], Any] | None = None, record_shapes: bool = False,
        profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
        with_modules: bool = False, experimental_config: object = None,
        execution_trace_observer: Any = None, acc_events: bool = False,
        use_cuda: bool | None = None, custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        wrong = [a for a in activities or () if a is not ProfilerActivity.CPU]
        if wrong:
            raise ConfigError(f"profile: activities={wrong} given; there is ProfilerActivity.CPU")
        super().__init__(
            use_cuda=bool(use_cuda), record_shapes=record_shapes, with_flops=with_flops,
            profile_memory=profile_memory, with_stack=with_stack, with_modules=with_modules,
        )  # fmt: skip
        self.schedule, self.on_trace_ready = schedule or always, on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._observer, self._keeps = execution_trace_observer, acc_events
        self._trace_id = custom_trace_id_callback
        self._since = 0
        self._started = False

    # --- a record -------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin: what the schedule says of step 0."""
        self.__enter__()

    def stop(self) -> None:
        """End; a record that has begun is ready then."""
        self.__exit__()

    def __enter__(self) -> Self:
        self._started = True
        if self.current_action in RECORDING:
            self.start_trace()
        return self

    def __exit__(self, *exc: object) -> None:
        was, self._started = self._started, False
        if was and self.current_action in RECORDING:
            self.stop_trace()
            self._ready()

    def prepare_trace(self) -> None:
        """Nothing has to be prepared."""

    def start_trace(self) -> None:
        """Record from now on, whatever the schedule says."""
        if not self._keeps or not self._begin:
            self.function_events, self.memory_events = [], []
            super().__enter__()
        else:
            self._record()
        if self._observer is not None:
            self._observer.start()
        self._since = time.perf_counter_ns()

    def stop_trace(self) -> None:
        """Record no more."""
        if self._observer is not None:
            self._observer.stop()
        super().__exit__()

    def _ready(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """A step ends here: it is an event, from the end of the one before."""
        before = self.current_action
        if before in RECORDING and self._started:
            self.note(f"ProfilerStep#{self.step_num}", self._since, [], kind="user_annotation")
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if not self._started:
            return
        goes_on = self.current_action in RECORDING and before is not ProfilerAction.RECORD_AND_SAVE
        if before in RECORDING and not goes_on:
            self.stop_trace()
            if before is ProfilerAction.RECORD_AND_SAVE:
                self._ready()
        if self.current_action in RECORDING and not (goes_on and before in RECORDING):
            self.start_trace()
        self._since = time.perf_counter_ns()

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable) -> None:
        """Stop to look on, or go on, within a record."""
        if enable and self._started:
            self._record()
        elif not enable:
            super().__exit__()

    # --- what a trace says besides --------------------------------------------------------------
    def add_metadata(self, key: str, value: str) -> None:
        """A text that the trace shows."""
        self.facts[key] = str(value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """A value as JSON that the trace shows."""
        self.facts[key] = value

    preset_metadata_json = add_metadata_json

    def get_trace_id(self) -> str | None:
        """What the program's own function calls the trace."""
        return None if self._trace_id is None else self._trace_id()

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Name traces by ``callback``."""
        self._trace_id = callback

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write, as JSON, times in microseconds and the bytes that were taken at each. Needs
        ``profile_memory=True``."""
        if not str(path).endswith((".json", ".json.gz")):
            raise ConfigError(
                f"export_memory_timeline: {path} given; the name is to end with .json or .json.gz"
            )
        times, sizes, total = [], [], 0
        for at, count, _ in sorted(self.memory_events):
            total += count
            times.append(at)
            sizes.append(total)
        chrome.write(path, [times, sizes])


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False,
    use_python_export: bool = False,
) -> Callable[[Profiler], None]:  # fmt: skip
    """For ``on_trace_ready``: writes each record to a file of its own in ``dir_name``, as
    TensorBoard's plugin of profiles looks for them. ``worker_name`` (None: host and process) tells
    the ranks apart."""

    def handler(prof: Profiler) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError(f"Can't create directory: {dir_name}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return handler
