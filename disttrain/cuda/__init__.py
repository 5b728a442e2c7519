"""CUDA devices under the names of ``torch.cuda``: devices, streams, events, memory, random numbers.

Everything goes through the platform that is offered as "cuda" (``backends.device.platform``), so
nothing here knows CuPy. Where there is no device, questions answer so (``is_available()`` is False,
``memory_allocated()`` 0) and what needs one raises a ``DeviceError`` that says what is missing.
Importing this starts nothing.
"""

from .. import amp
from ..errors import OutOfMemoryError
from . import accelerator, comm, nvtx
from .devices import *
from .graphs import *
from .memory import *
from .random import *
from .sensors import *
from .streams import *
from .which import init, is_initialized
