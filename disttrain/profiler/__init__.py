"""What a piece of a program spends its time and memory on, under the names of ``torch.profiler``
(``Profiler`` is its ``profile``) and ``torch.autograd.profiler``."""

from .chrome import merge_chrome_traces
from .events import Averages, Event
from .execution_trace import ExecutionTraceObserver
from .profiler import (
    DeviceType,
    Profiler,
    ProfilerActivity,
    kineto_available,
    supported_activities,
    tensorboard_trace_handler,
)
from .recording import named_comm, open_profiles, profile, record_function
from .schedule import ProfilerAction, schedule

__all__ = [
    "Averages",
    "DeviceType",
    "Event",
    "ExecutionTraceObserver",
    "Profiler",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "merge_chrome_traces",
    "named_comm",
    "open_profiles",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
