"""``disttrain ckpt``: what it prints, what it finds, what it writes."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import serialize
from disttrain.cli import main
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint import format_utils, tools
from disttrain.distributed.checkpoint.files import folder

STATE = {"model": {"w": np.arange(12.0).reshape(6, 2), "b": np.ones(3, np.float32)}}


def state() -> dict:
    model = {k: dt.tensor(v) for k, v in STATE["model"].items()}
    return {
        "model": model,
        "step": 4,
        "optim": {"state": {0: {"m": dt.ones(5), "step": dt.tensor(7.0)}}, "lr": 0.5},
    }


@pytest.fixture
def saved(tmp_path):
    def body() -> None:
        dist.init_process_group()
        dcp.save(state(), checkpoint_id=tmp_path / "run" / "step_4")

    simulate(body, 2)
    return tmp_path / "run" / "step_4"


def ckpt(*words: object) -> int:
    return main(["ckpt", *map(str, words)])


def spoil(path, at: int = -3) -> None:
    shard = sorted(path.glob("shard-*"))[0]
    data = bytearray(shard.read_bytes())
    data[at] ^= 4
    shard.write_bytes(data)


def test_ls_tells_finished_from_unfinished(saved, capsys):
    left = saved.parent / "step_5"
    left.mkdir()
    (left / folder.shard_name(folder.new_save(), 0, 2)).write_bytes(b"x" * 10)
    assert ckpt("ls", saved.parent) == 0
    shown = capsys.readouterr().out
    assert "step_4  2 ranks  4 tensors  2 other values" in shown
    assert "did not finish" in shown and "and 10 B of" in shown
    assert ckpt("ls", saved.parent, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [bool(r["problem"]) for r in rows] == [False, True] and rows[0]["world_size"] == 2


def test_show_names_tensors_and_values(saved, capsys):
    assert ckpt("show", saved, "--pieces") == 0
    shown = capsys.readouterr().out
    assert "model.w  float64 [6, 2]" in shown and "21 elements" in shown and " B; save" in shown
    assert ckpt("show", saved, "optim.lr") == 0
    assert capsys.readouterr().out == "optim.lr = 0.5\n"
    assert ckpt("show", saved, "nothing") == 2


def test_verify_finds_a_flipped_bit(saved, capsys):
    assert ckpt("verify", saved) == 0
    assert "whole: 6 values in 1 file," in capsys.readouterr().out
    spoil(saved)
    assert ckpt("verify", saved) == 1
    assert "checksum" in capsys.readouterr().out


def test_diff_names_what_differs(saved, tmp_path, capsys):
    other = state()
    other["model"]["w"][1, 1] += 0.5
    other["extra"] = 1
    dcp.save(other, checkpoint_id=tmp_path / "other")
    assert ckpt("diff", saved, saved) == 0
    assert ckpt("diff", saved, tmp_path / "other") == 1
    shown = capsys.readouterr().out
    assert "model.w: 1 of 12 elements differ, by 0.5" in shown
    assert "only in" in shown and "extra" in shown and "5 values are equal" in shown
    assert ckpt("diff", saved, tmp_path / "other", "--ignore", "extra", "--ignore", "model.w") == 0


def test_reshard_writes_as_other_ranks_would(saved, tmp_path):
    assert ckpt("reshard", saved, tmp_path / "four", "--ranks", 4) == 0
    about = tools.read_manifest(str(tmp_path / "four"))
    assert about.world_size == 4 and len(about.files) == 4
    assert len(about.metadata.state_dict_metadata["model.w"].chunks) == 3  # of two rows each
    assert not tools.diff(str(saved), str(tmp_path / "four"))
    assert ckpt("reshard", saved, tmp_path / "four", "--ranks", 2) == 2  # it is there already


def test_consolidate_gives_a_file_that_any_reader_knows(saved, tmp_path):
    file = tmp_path / "all.safetensors"
    assert ckpt("consolidate", saved, file) == 0
    whole = serialize.load(file)
    assert whole["step"] == 4 and whole["optim"]["state"][0]["m"].tolist() == [1.0] * 5
    assert ckpt("consolidate", saved, file, "--key", "model") == 0
    raw = file.read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    assert header["w"]["shape"] == [6, 2] and header["w"]["dtype"] == "F64"
    np.testing.assert_array_equal(serialize.load(file)["w"].numpy(), STATE["model"]["w"])
    assert ckpt("consolidate", saved, file, "--key", "nothing") == 2


def test_import_takes_a_file_or_an_index(tmp_path):
    one, two = {"a": dt.ones(3)}, {"b": dt.arange(4)}
    (tmp_path / "hf").mkdir()
    serialize.save(one, tmp_path / "hf" / "model-1.safetensors")
    serialize.save(two, tmp_path / "hf" / "model-2.safetensors")
    index = tmp_path / "hf" / "model.safetensors.index.json"
    table = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    index.write_text(json.dumps({"metadata": {}, "weight_map": table}))
    for k, source in enumerate((index, tmp_path / "hf")):
        assert ckpt("import", source, tmp_path / f"c{k}", "--key", "model") == 0
        target = {"model": {"a": dt.zeros(3), "b": dt.zeros(4, dtype=dt.int64)}}
        dcp.load(target, checkpoint_id=tmp_path / f"c{k}")
        assert target["model"]["b"].tolist() == [0, 1, 2, 3]
    assert ckpt("import", tmp_path / "hf" / "model-1.safetensors", tmp_path / "one") == 0
    index.write_text(json.dumps({"weight_map": {"a": "../../etc/x.safetensors"}}))
    assert ckpt("import", index, tmp_path / "bad") == 2
    index.write_text(json.dumps({"weight_map": {**table, "c": "model-1.safetensors"}}))
    assert ckpt("import", index, tmp_path / "bad") == 2


def test_to_one_file_and_back(saved, tmp_path):
    format_utils.dcp_to_torch_save(saved, tmp_path / "one.pt")
    format_utils.torch_save_to_dcp(tmp_path / "one.pt", tmp_path / "back")
    assert not tools.diff(str(saved), str(tmp_path / "back"))


def test_gc_removes_what_nobody_writes(saved, capsys):
    left = saved / folder.shard_name(folder.new_save(), 1, 2)
    left.write_bytes(b"x" * 7)
    running = folder.Shard(str(saved), folder.shard_name(folder.new_save(), 0, 1), 8)
    assert ckpt("gc", saved.parent, "--dry-run") == 0
    assert "1 file, 7 B" in capsys.readouterr().out and left.exists()
    assert ckpt("gc", saved.parent) == 0
    assert not left.exists() and ckpt("verify", saved) == 0
    running.close(remove=True)


def test_what_is_no_checkpoint_is_told_plainly(tmp_path, capsys):
    assert ckpt("verify", tmp_path / "nowhere") == 2
    assert "does not exist" in capsys.readouterr().err
    (tmp_path / ".metadata").write_bytes(b"\x80\x02")
    assert ckpt("show", tmp_path) == 2
    assert "the file is damaged" in capsys.readouterr().err
    assert ckpt("ls", tmp_path, "--what") == 2


@pytest.mark.parametrize("words", [("import", "{}", "out"), ("show", "{}")])
def test_a_damaged_folder_of_pytorch_is_refused_by_name(tmp_path, capsys, words):
    (tmp_path / ".metadata").write_bytes(b"\x80\x02")
    (tmp_path / "__0_0.distcp").write_bytes(b"PK\x03\x04")
    assert main(["ckpt", *(w.format(tmp_path) for w in words)]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/.metadata" in said and "the file is damaged" in said


def test_consolidate_names_what_there_is(tmp_path, capsys):
    dcp.save({"model": {"w": dt.ones(2)}, "epoch": 3}, checkpoint_id=tmp_path / "c")
    words = [str(tmp_path / "c"), str(tmp_path / "o.safetensors"), "--key", "nokey"]
    assert main(["ckpt", "consolidate", *words]) == 2
    assert "has nothing under 'nokey'; on top it has epoch, model." in capsys.readouterr().err
