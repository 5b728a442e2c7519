"""Calls as events of the profiles that the calling thread is in (``profiler``), under PyTorch's
names: ``rpc_sync#function(caller -> callee)``. An event lasts until the answer has come."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from ..profiler import open_profiles
from .calls.agent import Agent
from .calls.answers import CallFuture


def noted(mode: str, func: Callable[..., Any], agent: Agent, future: CallFuture) -> CallFuture:
    """``future``, the answer to a call of ``func`` that was just sent; ``mode``: "sync", "async" or
    "remote"."""
    profiles = open_profiles()
    if profiles:
        name = getattr(func, "__qualname__", None) or type(func).__qualname__
        event = f"rpc_{mode}#{name}({agent.me.name} -> {future.worker.name})"
        since = perf_counter_ns()

        def note(_: CallFuture) -> None:
            for profile in profiles:
                profile.note(event, since, [], is_async=True)

        future.at_once(note)
    return future
