"""A worker process: loads the models, then runs one batch after another, as the front asks it to.

It has no connection but the one to the front, whose end is its own end.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import lifetime
from ..backends import threads
from ..errors import DisttrainError
from .coding import dtype_of
from .messages import Channel
from .models import Model, Opener, fingerprint
from .slabs import Slab, aligned

_LONGEST = 2000
SLOTS = 2  # while the front reads the results of one batch, the next one runs


class Worker:
    """``slabs``: one for requests and one for results, for each slot."""

    def __init__(self, channel: Channel, slabs: Sequence[tuple[Slab, Slab]]) -> None:
        self.channel, self.slabs = channel, slabs
        self.models: dict[str, Model] = {}

    def load(self, models: dict[str, str], places: dict[str, str], opener: Opener) -> bool:
        """Load all, and say to the front what came of it. ``places``: paths that mean the files now
        and later; ``models``: those that people know."""
        told = {}
        for name, path in places.items():
            seen = fingerprint(path)
            try:
                model = opener(name, path)
            except Exception as error:
                self.channel.send({"failed": _said(error).replace(path, models[name])})
                return False
            if fingerprint(path) != seen:
                self.channel.send({"failed": f"{models[name]}: it changed while it was read"})
                return False
            self.models[name] = model
            told[name] = {"signature": model.signature.told(), "fingerprint": seen}
        return self.channel.send({"ready": told})

    def run(self) -> None:
        """Until the front has closed its end."""
        while (message := self.channel.receive()) is not None:
            self.channel.send({"ran": message["run"], **self._ran(message)})

    def _ran(self, message: dict[str, Any]) -> dict[str, Any]:
        model, (inlet, outlet) = self.models[message["model"]], self.slabs[message["slot"]]
        specs = model.signature.inputs
        inputs = {
            spec.name: inlet.array(offset, tuple(shape), dtype_of(spec.dtype))
            for spec, (shape, offset) in zip(specs, message["inputs"])
        }
        start = time.perf_counter()
        try:
            results = model.run(inputs)
            return {"outputs": _put(model, results, outlet), "s": time.perf_counter() - start}
        except (DisttrainError, ValueError, IndexError) as error:  # what it was given is wrong
            return {"error": _said(error), "status": 400}
        except Exception as error:
            return {"error": _said(error), "status": 500}


def _put(model: Model, results: Any, slab: Slab) -> list[list[Any]]:
    """Where the outputs lie in the slab."""
    arrays: list[np.ndarray] = []
    places: list[list[Any]] = []
    end = 0
    for spec in model.signature.outputs:
        array = np.asarray(results[spec.name])
        assert array.dtype == dtype_of(spec.dtype)
        arrays.append(array)
        places.append([list(array.shape), end])
        end = aligned(end + array.nbytes)
    slab.grow(end)
    for array, (shape, offset) in zip(arrays, places):
        slab.array(offset, tuple(shape), array.dtype)[...] = array
    return places


def _said(error: Exception) -> str:
    kind = "" if isinstance(error, DisttrainError) else f"{type(error).__name__}: "
    return f"{kind}{error}"[:_LONGEST]


def main(
    channel: Channel,
    fds: Sequence[tuple[int, int]],
    models: dict[str, str],
    places: dict[str, str],
    opener: Opener,
    num_threads: int,
) -> int:
    """The process. Signals are for the supervisor; the end of the channel is the end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lifetime.rename("dt-serve-worker")
    threads.set_count(num_threads)
    worker = Worker(channel, [(Slab(i), Slab(o)) for i, o in fds])
    if not worker.load(models, places, opener):
        return 1
    worker.run()
    return 0
