"""Manifests as bytes: what is written is read, and every number is doubted."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint import tools
from disttrain.distributed.checkpoint.files import folder, manifest
from disttrain.distributed.checkpoint.files.manifest import Manifest, Place
from disttrain.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from disttrain.distributed.checkpoint.state.flat import Index
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Shard, distribute_tensor
from disttrain.errors import SerializationError


def spread(value: float) -> dict:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {"w": distribute_tensor(dt.full((8, 4), value), mesh, [Shard(0)]), "n": value}


def save(where: Path, value: float = 1.0, ranks: int = 2) -> None:
    def body() -> None:
        dist.init_process_group()
        dcp.save(spread(value), checkpoint_id=where)

    simulate(body, ranks)


def body_of(where: Path) -> dict:
    return folder_json(where)["body"]


def folder_json(where: Path) -> dict:
    return json.loads((where / folder.MANIFEST).read_text())


HOSTILE = {
    "a path": lambda b: b["tensors"]["w"]["chunks"][0].__setitem__(2, "../x.safetensors"),
    "a foreign file": lambda b: b["files"].__setitem__("/etc/passwd", 10),
    "a negative place": lambda b: b["tensors"]["w"]["chunks"][0].__setitem__(3, -1),
    "a place behind the end": lambda b: b["tensors"]["w"]["chunks"][0].__setitem__(4, 1 << 40),
    "too large a shape": lambda b: b["tensors"]["w"].__setitem__("shape", [1 << 61, 1 << 61]),
    "an overlap": lambda b: b["tensors"]["w"]["chunks"][1].__setitem__(0, [0, 0]),
    "a hole": lambda b: b["tensors"]["w"]["chunks"].pop(),
    "no type": lambda b: b["tensors"]["w"].__setitem__("dtype", "object"),
    "no sums": lambda b: b["tensors"]["w"]["chunks"][0].__setitem__(5, ""),
    "bad sums": lambda b: b["tensors"]["w"]["chunks"][0].__setitem__(5, "zz" * 4),
    "no list": lambda b: b.__setitem__("tensors", 3),
    "no save": lambda b: b.pop("save"),
    "a value twice": lambda b: b["objects"].__setitem__("w", b["objects"]["n"]),
    "a deep path": lambda b: b["paths"].__setitem__("w", [[[1]]]),
}


@pytest.mark.simulated
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_manifests_are_refused(tmp_path, name):
    """Their own checksum fits: somebody made them."""
    save(tmp_path)
    body = body_of(tmp_path)
    HOSTILE[name](body)
    text = json.dumps(body)
    digest = hashlib.sha256(text.encode()).hexdigest()
    raw = f'{{"disttrain.checkpoint": 1, "sha256": "{digest}", "body":\n{text}\n}}\n'
    (tmp_path / folder.MANIFEST).write_text(raw)
    with pytest.raises(SerializationError):
        tools.values(str(tmp_path))


@pytest.mark.simulated
def test_versions_to_come_are_told_from_damage(tmp_path):
    save(tmp_path)
    path = tmp_path / folder.MANIFEST
    path.write_text(path.read_text().replace('checkpoint": 1', 'checkpoint": 2'))
    with pytest.raises(SerializationError, match="newer version"):
        tools.read_manifest(str(tmp_path))
    path.write_text("{}")
    with pytest.raises(SerializationError, match="no manifest"):
        tools.read_manifest(str(tmp_path))


@pytest.mark.simulated
def test_truth_values_are_truth_values(tmp_path):
    dcp.save({"f": dt.tensor([True, False])}, checkpoint_id=tmp_path)
    dcp.save({"f": dt.tensor([3, 1], dtype=dt.uint8)}, checkpoint_id=tmp_path / "u")
    about = tools.read_manifest(str(tmp_path / "u"))
    raw = (tmp_path / "u" / folder.MANIFEST).read_text()
    head, body, tail = raw.split("\n", 2)
    body = body.replace('"uint8"', '"bool"')
    digest = hashlib.sha256(body.encode()).hexdigest()
    head = f'{{"disttrain.checkpoint": 1, "sha256": "{digest}", "body":'
    (tmp_path / "u" / folder.MANIFEST).write_text("\n".join([head, body, tail]))
    assert about.world_size == 1
    with pytest.raises(SerializationError, match="truth value is 3"):
        tools.values(str(tmp_path / "u"))


SHARD = folder.shard_name("0" * 24, 0, 1)


def made(planner_data=None) -> Manifest:
    """A tensor in two pieces, and a value."""
    chunks = [ChunkStorageMetadata(dt.Size((k, 0)), dt.Size((1, 2))) for k in (0, 1)]
    kind = TensorProperties(dt.bfloat16, requires_grad=True)
    about = {"w": TensorStorageMetadata(kind, dt.Size((2, 2)), chunks), "n": BytesStorageMetadata()}
    places = {
        MetadataIndex("w", (0, 0)): Place(SHARD, 8, 12, "0000000a"),
        MetadataIndex("w", (1, 0)): Place(SHARD, 12, 16, "ffffffff"),
        MetadataIndex("n"): Place(SHARD, 16, 16, ""),
    }
    return Manifest("0" * 24, 3, {SHARD: 20}, Metadata(about, planner_data, places))


def test_what_is_written_is_read():
    paths = {"w": ("m", 3, Index(0)), "n": ("n",)}
    first = made(paths)
    again = manifest.read(manifest.write(first), "here")
    assert (again.save, again.world_size, again.files) == (first.save, 3, {SHARD: 20})
    assert again.metadata.state_dict_metadata == first.metadata.state_dict_metadata
    assert again.metadata.storage_data == first.metadata.storage_data
    assert again.metadata.planner_data == paths
    assert [type(k) for k in again.metadata.planner_data["w"]] == [str, int, Index]
    assert manifest.write(again) == manifest.write(first)


@pytest.mark.parametrize("data", [None, {"a": [1]}, [1, 2], {"a": ("x", 1.5)}, {1: ("x",)}])
def test_what_a_planner_keeps_comes_back(data):
    assert manifest.read(manifest.write(made(data)), "here").metadata.planner_data == data


def test_any_changed_byte_is_damage():
    raw = manifest.write(made())
    for at in range(0, len(raw), 7):
        spoiled = bytearray(raw)
        spoiled[at] ^= 1
        with pytest.raises(SerializationError, match=r"^here: "):
            manifest.read(bytes(spoiled), "here")
    for cut in (0, 1, len(raw) // 2, len(raw) - 1):
        with pytest.raises(SerializationError, match=r"^here: "):
            manifest.read(raw[:cut], "here")
    with pytest.raises(SerializationError, match="does not fit its own checksum"):
        manifest.read(raw.replace(b"bfloat16", b"bfloat17"), "here")
