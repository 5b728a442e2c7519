"""A strict double of a device: arrays that keep their memory, refuse to meet the host's, and count.

    def test_it(double):                    # offers a DoublePlatform of two devices as "cuda"
        a = double.upload(host, 0)          # a StrictArray
        double.counts.clear()
        ...
        assert double.counts.transfers == 0 and not double.counts.waits

When in doubt it is stricter than CuPy: what it takes, CuPy takes; what it refuses may be possible,
but waits for the device, copies in secret, or depends on the order of threads.
"""

from .array import StrictArray
from .platform import Counts, DoublePlatform
from .signatures import Unsupported
from .streams import StreamRace
from .work import HostUse, WrongDevice

__all__ = [
    "Counts", "DoublePlatform", "HostUse", "StreamRace", "StrictArray", "Unsupported",
    "WrongDevice",
]  # fmt: skip
