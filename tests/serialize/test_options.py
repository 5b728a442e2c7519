"""What is left out and shared by request."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from disttrain.core import wrap
from disttrain.core.types import dtypes
from disttrain.errors import ConfigError, SerializationError
from disttrain.serialize import (
    get_crc32_options,
    get_default_mmap_options,
    load,
    save,
    set_crc32_options,
    set_default_mmap_options,
)


def tensor(values, kind=dtypes.float32):
    return wrap(np.asarray(values, dtype=kind.np))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.safetensors"


def test_checksums_can_be_left_out(path):
    values = tensor([1.0, 2.0])
    assert get_crc32_options()
    set_crc32_options(False)
    try:
        save({"a": values}, path)
    finally:
        set_crc32_options(True)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # nobody notices
    path.write_bytes(data)
    assert load(path)["a"].array[0] == 1 and load(path)["a"].array[1] != 2
    save({"a": values}, path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(SerializationError, match="checksum"):
        load(path)


def test_a_mapping_can_be_shared_with_the_file(path):
    save({"a": tensor([1.0, 2.0])}, path)
    assert get_default_mmap_options() == mmap.MAP_PRIVATE
    load(path, mmap=True)["a"].array[0] = 5
    with set_default_mmap_options(mmap.MAP_SHARED):
        load(path)["a"].array[0] = 6  # nobody has asked for a mapping
        assert load(path)["a"].array[0] == 1
        load(path, mmap=True)["a"].array[0] = 7
    assert load(path, mmap=True)["a"].array[0] == 7
    assert get_default_mmap_options() == mmap.MAP_PRIVATE
    with pytest.raises(SerializationError, match="checksum"):
        load(path)  # the data is not what was saved
    with pytest.raises(ConfigError, match="MAP_SHARED"):
        set_default_mmap_options(7)
