"""Says where a simulated rank stands that blocks outside the simulation, which stops all ranks.

Ranks take turns at calls of this package. One that waits elsewhere (for a lock that another rank
holds, say) never ends its turn, and no scheduler can know; but its thread needs no processor then.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from disttrain.comm.transports.sim import Scheduler
from disttrain.comm.transports.sim.stacks import standing

PATIENCE = 20.0  # real seconds of a turn without any processor time
_LOOKS = 4  # in that time


class Watch:
    """Looks at a scheduler now and then, on a thread of its own."""

    def __init__(
        self, scheduler: Scheduler, say: Callable[[str], None], patience: float = PATIENCE
    ) -> None:
        self._scheduler, self._say = scheduler, say
        self._every = patience / _LOOKS
        self.quiet = False  # a rank talks with people, who take their time
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        before: tuple | None = None
        same = 0
        while not self._over.wait(self._every):
            task = self._scheduler.running
            thread = None if task is None else task.thread
            ident = None if thread is None else thread.native_id
            now = (len(self._scheduler.schedule), task, 0 if ident is None else _ticks(ident))
            same = same + 1 if now == before and task is not None else 0
            before = now
            if self.quiet:
                same = 0
            if same == _LOOKS and task is not None:
                self._say(
                    f"rank {task.rank} has waited for {self._every * _LOOKS:g} s elsewhere than in "
                    "a call of this package, and all ranks with it; this is where it stands:\n"
                    + "\n".join(standing([task]))
                )


def _ticks(native_id: int) -> int:
    """The processor time of one of our threads, in the kernel's ticks."""
    try:
        with open(f"/proc/{os.getpid()}/task/{native_id}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0
    return int(fields[11]) + int(fields[12])


def say_aside(text: str) -> None:
    """A line of the launcher's own, past the voices of ranks."""
    stream = sys.__stderr__
    if stream is not None:
        stream.write(f"dtrun: {text}\n")
        stream.flush()
