"""The store of a rank without peers: it only has to be there."""

from __future__ import annotations

from ...store import HashStore


class FakeStore(HashStore):
    """What programs give to ``init_process_group(backend="fake", store=...)``. It keeps what this
    process sets, and waits for nobody: there is nobody."""
