"""One process that plays a rank of a group without peers, to see memory, shapes and plans."""

from .store import FakeStore
from .transport import FakeTransport
