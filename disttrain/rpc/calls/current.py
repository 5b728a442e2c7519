"""Which agent is this rank's."""

from __future__ import annotations

from ... import context
from .agent import Agent
from .failures import not_initialized

SLOT = "rpc.calls"  # of a rank: its agent


def current_agent() -> Agent:
    """The agent of this rank; an error where RPC is not initialized."""
    agent = context.thread.rank.slots.get(SLOT)
    if agent is None:
        raise not_initialized()
    return agent


def has_agent() -> bool:
    """Whether this process is a worker that others can call (``init_rpc``)."""
    return context.thread.rank.slots.get(SLOT) is not None
