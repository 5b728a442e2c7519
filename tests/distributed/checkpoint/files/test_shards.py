"""One rank's file: any reader knows it, pieces have names, sums fit what is written."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest

import disttrain as dt
from disttrain import serialize
from disttrain.backends.llvm.checksum import BLOCK, crc32c_blocks
from disttrain.distributed.checkpoint.files import folder, shards
from disttrain.distributed.checkpoint.files.shards import Part, hex_of, write_shard
from disttrain.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from disttrain.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from disttrain.errors import SerializationError

pytestmark = pytest.mark.simulated

NAME = folder.shard_name("0" * 24, 0, 1)


def tensor(name, value, full=None, at=None):
    at = (0,) * value.ndim if at is None else at
    chunk = ChunkStorageMetadata(dt.Size(at), dt.Size(value.shape))
    data = TensorWriteData(chunk, TensorProperties(value.dtype), dt.Size(full or value.shape))
    return Part(WriteItem(MetadataIndex(name, at), WriteItemType.TENSOR, tensor_data=data), value)


def loose(name, data):
    return Part(WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO), io.BytesIO(data))


def written(where, *parts):
    """(where each part lies, the bytes of the file)."""
    opened = []
    shard, places = write_shard(str(where), NAME, list(parts), opened.append)
    assert opened == [shard]
    shard.close(remove=False)
    return places, (where / NAME).read_bytes()


def test_places_are_those_of_the_bytes_and_sums_are_theirs(tmp_path):
    values = [dt.arange(5, dtype=dt.uint8), dt.arange(3.0), dt.tensor(7, dtype=dt.int64)]
    parts = [tensor(f"t{k}", v) for k, v in enumerate(values)]
    places, raw = written(tmp_path, parts[0], loose("n", b"abc"), *parts[1:], loose("m", b"de"))
    for place, want in zip(places, [values[0], b"abc", *values[1:], b"de"], strict=True):
        data = want if isinstance(want, bytes) else want.numpy().tobytes()
        assert raw[place.begin : place.end] == data and place.file == NAME
        assert place.sums == hex_of(crc32c_blocks(np.frombuffer(data, np.uint8)))


def test_any_reader_knows_the_file(tmp_path):
    half = dt.ones(2, 3)
    written(tmp_path, tensor("w", half, full=(4, 3), at=(2, 0)), tensor("b", dt.zeros(2)),
            loose("n", b"abc"))  # fmt: skip
    found = serialize.load(tmp_path / NAME)
    assert sorted(found) == ["b", "w[2:4,0:3]", "~objects"]
    assert found["w[2:4,0:3]"].tolist() == half.tolist()
    assert bytes(found["~objects"].numpy()) == b"abc"


def test_wide_elements_come_first_so_that_all_are_aligned(tmp_path):
    parts = [tensor("a", dt.ones(3, dtype=dt.uint8)), tensor("b", dt.ones(1, dtype=dt.float64)),
             tensor("c", dt.ones(1, dtype=dt.float16)), tensor("d", dt.ones(1))]  # fmt: skip
    places, _ = written(tmp_path, *parts)
    assert sorted(places, key=lambda p: p.begin) == [places[k] for k in (1, 3, 2, 0)]
    for place, width in zip(places, (1, 8, 2, 4), strict=True):
        assert place.begin % width == 0


def test_names_that_are_taken_are_changed(tmp_path):
    places, raw = written(tmp_path, tensor("~objects", dt.ones(1)), tensor("w", dt.zeros(1)),
                          tensor("w", dt.full((1,), 2.0)), loose("n", b"x"))  # fmt: skip
    assert len(serialize.inspect(tmp_path / NAME).entries) == 4
    assert raw[places[2].begin : places[2].end] == np.float32(2.0).tobytes()
    assert raw[places[3].begin : places[3].end] == b"x"


def test_types_that_the_format_lacks_and_strides(tmp_path):
    wave, turned = dt.tensor([1 + 2j], dtype=dt.complex128), dt.arange(6.0).reshape(2, 3).T
    places, raw = written(tmp_path, tensor("z", wave), tensor("t", turned))
    entries = serialize.inspect(tmp_path / NAME).entries
    assert entries["z"].shape == (1, 2) and entries["z"].dtype == "<f8"
    assert raw[places[0].begin : places[0].end] == wave.numpy().tobytes()
    data = np.frombuffer(raw[places[1].begin : places[1].end], np.float32)
    assert data.tolist() == [0, 3, 1, 4, 2, 5]


def test_large_values_have_a_sum_for_each_block(tmp_path):
    value = dt.arange(5 * BLOCK // 2, dtype=dt.int32).to(dt.uint8)
    (place,), raw = written(tmp_path, tensor("w", value))
    assert len(place.sums) == 8 * 3
    last = np.frombuffer(raw[place.begin + 2 * BLOCK : place.end], np.uint8)
    assert place.sums[16:] == hex_of(crc32c_blocks(last))


def test_a_header_that_nobody_would_read_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "HEADER_CAP", 100)
    with pytest.raises(SerializationError, match=r"single_file_per_rank=False"):
        written(tmp_path, *[tensor(f"name{k}", dt.ones(1)) for k in range(9)])
    assert os.listdir(tmp_path) == []


def test_nothing_is_a_file_too(tmp_path):
    places, _ = written(tmp_path, tensor("e", dt.ones(0, 3)))
    assert places[0].begin == places[0].end and places[0].sums == ""
