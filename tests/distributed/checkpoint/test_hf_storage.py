"""Folders of safetensors files: read by index or without, written by all ranks."""

from __future__ import annotations

import json

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import serialize
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Shard, distribute_tensor
from disttrain.errors import ConfigError, SerializationError

pytestmark = pytest.mark.simulated


def test_ranks_load_their_parts_of_foreign_files(tmp_path):
    serialize.save({"a": dt.arange(10)}, tmp_path / "model.safetensors")
    target = {"a": dt.zeros(10, dtype=dt.int64)}
    dcp.load(target, storage_reader=dcp.HuggingFaceStorageReader(tmp_path))
    assert target["a"].tolist() == list(range(10))


def test_files_for_other_libraries_are_written_by_all_ranks(tmp_path):
    def body() -> None:
        dist.init_process_group()
        mesh = init_device_mesh("cpu", (2,))
        spread = distribute_tensor(dt.arange(7), mesh, [Shard(0)])
        writer = dcp.HuggingFaceStorageWriter(tmp_path, {"a": 1, "b": 2})
        dcp.save({"a": spread, "b": dt.ones(3)}, storage_writer=writer)

    simulate(body, 2)
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = "model.safetensors.index.json"
    assert sorted(p.name for p in tmp_path.iterdir()) == [*names, index]
    assert serialize.load(tmp_path / names[0])["a"].tolist() == list(range(7))
    assert json.loads((tmp_path / index).read_text())["metadata"]["total_size"] == 7 * 8 + 3 * 4
    target = {"a": dt.zeros(7, dtype=dt.int64), "b": dt.zeros(3)}
    dcp.load(target, storage_reader=dcp.HuggingFaceStorageReader(tmp_path))
    assert target["a"].tolist() == list(range(7)) and target["b"].tolist() == [1, 1, 1]
    with pytest.raises(dcp.CheckpointException, match="tensors alone"):
        dcp.save({"n": 1}, storage_writer=dcp.HuggingFaceStorageWriter(tmp_path / "no"))
    with pytest.raises(dcp.CheckpointException, match="names no file for b"):
        writer = dcp.HuggingFaceStorageWriter(tmp_path / "no", {"a": 1})
        dcp.save({"a": dt.ones(1), "b": dt.ones(1)}, storage_writer=writer)
    assert not (tmp_path / "no").exists()


@pytest.fixture
def parts(tmp_path):
    serialize.save({"a": dt.ones(3), "c": dt.zeros(1)}, tmp_path / "one.safetensors")
    serialize.save({"b": dt.arange(4)}, tmp_path / "two.safetensors")
    return tmp_path


def index(folder, table, name="model.safetensors.index.json"):
    (folder / name).write_text(json.dumps({"weight_map": table}))
    return folder / name


def test_without_an_index_all_files_are_read(parts):
    about = HuggingFaceStorageReader(parts).read_metadata()
    assert sorted(about.state_dict_metadata) == ["a", "b", "c"]
    assert about.state_dict_metadata["b"].properties.dtype is dt.int64
    places = {i.fqn: p for i, p in about.storage_data.items()}
    assert places["a"].file == "one.safetensors" and places["a"].end - places["a"].begin == 12


def test_an_index_says_which_tensors_there_are(parts):
    path = index(parts, {"a": "one.safetensors"})
    for where in (parts, path):
        about = HuggingFaceStorageReader(where).read_metadata()
        assert list(about.state_dict_metadata) == ["a"]  # not what is in the file beside it
    index(parts, {"a": "one.safetensors", "b": "one.safetensors"})
    with pytest.raises(SerializationError, match="1 tensors are named and in no file: b"):
        HuggingFaceStorageReader(parts).read_metadata()


def test_one_name_in_two_files_is_refused(parts):
    serialize.save({"a": dt.zeros(3)}, parts / "three.safetensors")
    with pytest.raises(SerializationError, match="tensor 'a' stands in two files"):
        HuggingFaceStorageReader(parts).read_metadata()


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/x.safetensors", ".x.safetensors", 3, "x"]
)
def test_an_index_names_files_beside_it_alone(parts, name):
    index(parts, {"a": name})
    with pytest.raises(SerializationError, match="is no name of a file beside it"):
        HuggingFaceStorageReader(parts).read_metadata()


def test_what_is_no_such_folder_is_told(tmp_path):
    with pytest.raises(ConfigError, match="holds no safetensors files"):
        HuggingFaceStorageReader(tmp_path).read_metadata()
    with pytest.raises(ConfigError, match="no folder, and no index"):
        HuggingFaceStorageReader(tmp_path / "nothing").read_metadata()
    (tmp_path / "i.json").write_text('{"weight_map": [1]}')
    with pytest.raises(SerializationError, match="an index needs a weight_map"):
        HuggingFaceStorageReader(tmp_path / "i.json").read_metadata()


def test_ranks_that_see_different_files_are_told(parts):
    reader = HuggingFaceStorageReader(parts)
    reader.read_metadata()
    plan = reader.prepare_local_plan(dcp.LoadPlan([]))
    assert reader.prepare_global_plan([plan, plan]) == [plan, plan]
    other = dcp.LoadPlan([], [("one.safetensors", 1)])
    with pytest.raises(SerializationError, match="the ranks see different files"):
        reader.prepare_global_plan([plan, other])
    reader.reset(parts / "x")
    assert reader.metadata is None and reader.checkpoint_id == str(parts / "x")


def test_a_file_that_a_mapping_leaves_out_is_counted_all_the_same(tmp_path):
    writer = dcp.HuggingFaceStorageWriter(tmp_path, {"a": 3, "unused": 5})
    dcp.save({"a": dt.ones(2)}, storage_writer=writer)
    table = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert table == {"a": "model-00003-of-00005.safetensors"}
