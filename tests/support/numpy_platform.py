"""numpy as the array module of a device: for the meaning of overrides, beside the forwards'. What a
device would refuse is the business of ``device_double``."""

from __future__ import annotations

import numpy as np

from disttrain.backends.device.platform import Platform
from disttrain.backends.program import Program


class NumpyPlatform:
    """What ``ops/device`` asks of a platform, over numpy's own arrays."""

    kind, xp, array_type = "numpy", np, np.ndarray

    def __init__(self):
        self.programs = {}

    def empty(self, shape, dtype):
        return np.empty(shape, dtype)

    def launch(self, kernel, args):
        if kernel not in self.programs:
            self.programs[kernel] = Program(kernel, native=False)
        self.programs[kernel](*args)

    matmul = Platform.matmul
