"""Steps of training, as the program itself counts them: for ``disttrain top`` and reports.

Without it the steps of the program's first optimizer are counted, and no samples.
"""

from __future__ import annotations

from ..comm.job.blackbox import recorder


def step(samples: int = 0) -> None:
    """A step of this rank has ended, which took in so many ``samples``. From now on its optimizers
    are not counted. Every rank calls it for its own samples."""
    recorder().steps.told(samples)
