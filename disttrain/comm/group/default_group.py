"""Which group is a rank's default one, for layers below those that make it.

``distributed.state`` keeps it in the rank's context; this file knows the place, not the way there.
"""

from __future__ import annotations

from typing import Any

from ... import context

SLOT = "distributed"


def default_group() -> Any:
    """The default ``ProcessGroup`` of this rank, or None."""
    state = context.current().slots.get(SLOT)
    return None if state is None else state.world
