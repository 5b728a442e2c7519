"""Which agent is this rank's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import context
from ...errors import CommError

if TYPE_CHECKING:
    from .agent import Agent

SLOT = "distributed.calls"  # of a rank: its agent


def current_agent() -> Agent:
    """The agent of this rank; an error where RPC is not initialized."""
    agent = context.thread.rank.slots.get(SLOT)
    if agent is None:
        raise not_initialized()
    return agent


def has_agent() -> bool:
    return context.thread.rank.slots.get(SLOT) is not None


def not_initialized() -> CommError:
    return CommError(
        "RPC has not been initialized. Call torch.distributed.rpc.init_rpc first. (It was not "
        "called, or shutdown() was.)"
    )
