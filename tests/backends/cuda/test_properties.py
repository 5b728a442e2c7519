"""Properties of a device, wherever this version of CUDA tells them."""

from __future__ import annotations

import uuid

from disttrain.backends.cuda.properties import _SOURCES, Properties

ID = bytes(range(1, 17))


class Runtime:
    """CuPy's runtime with the properties and attributes given."""

    def __init__(self, properties, **attributes):
        base = {"name": b"Some GPU", "major": 9, "minor": 0, "totalGlobalMem": 80 << 30}
        self.properties = {**base, "uuid": ID, **properties}
        self.values = {}
        for k, (name, value) in enumerate(attributes.items()):
            setattr(self, name, 100 + k)
            self.values[100 + k] = value

    def getDeviceProperties(self, index):  # noqa: N802
        return self.properties

    def deviceGetAttribute(self, code, index):  # noqa: N802
        assert index == 3
        return self.values[code]


def test_properties_come_from_the_struct_where_it_has_them():
    told = {key: k + 1 for k, (key, _) in enumerate(_SOURCES.values())}
    found = Properties.of(Runtime(told), 3)
    assert [getattr(found, f) for f in _SOURCES] == list(range(1, len(_SOURCES) + 1))
    assert (found.name, found.major, found.total_memory) == ("Some GPU", 9, 80 << 30)


def test_what_the_struct_lacks_is_asked_as_an_attribute():
    runtime = Runtime({}, cudaDevAttrClockRate=1980, cudaDevAttrWarpSize=32)
    found = Properties.of(runtime, 3)
    assert (found.clock_rate, found.warp_size) == (1980, 32)
    assert found.memory_clock_rate == 0, "this version says it nowhere"


def test_zero_in_the_struct_is_an_answer():
    found = Properties.of(Runtime({"integrated": 0}, cudaDevAttrIntegrated=1), 3)
    assert found.is_integrated == 0


def test_a_uuid_that_ends_early_is_filled_with_zeros():
    assert Properties.of(Runtime({}), 3).uuid == uuid.UUID(bytes=ID)
    cut = Properties.of(Runtime({"uuid": ID[:5]}), 3).uuid
    assert cut.bytes == ID[:5] + b"\0" * 11
    assert Properties.of(Runtime({"uuid": ID + b"more"}), 3).uuid.bytes == ID


def test_it_prints_as_programs_know_it():
    found = Properties.of(Runtime({"name": "text", "l2CacheSize": 50 << 20, "pciBusID": 4}), 3)
    assert repr(found) == (
        "_CudaDeviceProperties(name='text', major=9, minor=0, total_memory=81920MB, "
        f"multi_processor_count=0, uuid={uuid.UUID(bytes=ID)}, pci_bus_id=4, pci_device_id=0, "
        "pci_domain_id=0, L2_cache_size=50MB)"
    )
