"""Training that outlives the ranks that it runs on: see ``docs/elastic.md``.

    state = elastic.State(model=model, optimizer=optimizer, step=0)

    @elastic.run
    def train(state):
        ddp = DistributedDataParallel(state.model)
        while state.step < steps:
            ...
            state.step += 1
            state.commit()

When a rank fails the others go back to the last commit, make a group without it and call ``train``
again; a process that the launcher starts in its place (``dtrun --replace-ranks``) takes over the
state of one of them. Beside it: what a script does when its job is asked to end, and how its errors
are recorded.
"""

from .records import record
from .running import is_newcomer, run
from .state import State
from .stopping import termination_requested

__all__ = ["State", "is_newcomer", "record", "run", "termination_requested"]
