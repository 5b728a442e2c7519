"""Arrays, devices and kernels. Knows no tensor and no graph."""

import numpy as np

from .. import context
from . import heap

# Overflow and 0/0 give inf and nan, as IEEE 754 has it, and training code looks for them itself;
# numpy keeps this setting per thread.
context.at_thread_start(lambda: np.seterr(over="ignore", invalid="ignore", divide="ignore"))

heap.keep()
