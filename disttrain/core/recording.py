"""Work of an accelerator that is recorded once and repeated: what it draws goes on at each replay.

Over ``Platform.graph``. Knows no Tensor: ``dt.cuda`` and compiled functions have what is given to
the device while one records.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..backends.device.platform import Graph, GraphPool, Platform, Stream
from ..context import current
from .random import RECORDING, Generator, Recorded, device_generator
from .types.device import device


class Recording:
    """``begin`` to ``end`` on a stream that is not the default one; then ``replay`` on any.

    ``generators``: those that replays go on from, beside the device's own.
    """

    def __init__(
        self, platform: Platform, line: Stream, pool: GraphPool | None,
        generators: Iterable[Generator] = (),
    ) -> None:  # fmt: skip
        own = device_generator(device(platform.kind, line.index))
        chosen = list(dict.fromkeys((own, *generators)))
        with platform.on(platform.default_stream(line.index)):
            self.drawn = [Recorded(g, platform.empty((2,), np.uint64)) for g in chosen]
        self.graph: Graph = platform.graph(pool, line)

    def begin(self) -> None:
        """From now on what the thread gives to its stream is recorded, not done."""
        self.graph.begin()
        slots = current().slots
        slots[RECORDING] = slots.get(RECORDING, 0) + 1
        for drawn in self.drawn:
            drawn.begin()

    def end(self) -> None:
        """Recording is over."""
        current().slots[RECORDING] -= 1
        for drawn in self.drawn:
            drawn.end()
        self.graph.end()

    def replay(self) -> None:
        """Do it all, on the current stream; the host does not wait."""
        for drawn in self.drawn:
            if drawn.offset:
                seed, offset = drawn.next()
                drawn.base[0:1] = np.uint64(seed)
                drawn.base[1:2] = np.uint64(offset)
        self.graph.replay()

    def reset(self) -> None:
        """Forget it, and let its memory go."""
        self.graph.reset()
        self.drawn = []
