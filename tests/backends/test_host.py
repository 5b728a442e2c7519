"""Facts of the machine, and arrays without data."""

import numpy as np
import pytest

from disttrain.backends import host
from disttrain.backends.null import NullArray
from disttrain.errors import DeviceError


def test_facts_are_plausible():
    cpu = host.cpu()
    assert cpu.model and isinstance(cpu.features, frozenset) and cpu.machine
    assert 1 <= host.cores() <= 4096
    assert host.memory() > 1 << 26
    assert host.vector_bits(frozenset()) == 128
    assert host.vector_bits(frozenset({"avx2"})) == 256
    assert host.vector_bits(frozenset({"avx2", "avx512f"})) == 512


def test_null_array_has_the_facts_of_an_array():
    a, b = NullArray((2, 3, 4), np.float32), np.empty((2, 3, 4), np.float32)
    for fact in ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides"):
        assert getattr(a, fact) == getattr(b, fact)
    assert NullArray((10**6, 10**6), np.float16).nbytes == 2 * 10**12


@pytest.mark.parametrize("use", [np.asarray, float, bool, list, lambda a: a[0], lambda a: a.item()])
def test_null_array_has_no_values(use):
    with pytest.raises(DeviceError, match="meta device has no data"):
        use(NullArray((3,), np.float32))
