"""Folders in Hugging Face's layout: one file or several, ties, configs, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import threading

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, SerializationError, StateDictError
from disttrain.serialize import (
    from_pretrained,
    inspect,
    read_config,
    read_pretrained,
    save,
    save_characters,
    save_pretrained,
)
from disttrain.serialize.pretrained import split

nn = dt.nn


class Tied(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = dict(config)
        self.tokens = nn.Embedding(config["vocabulary"], config["width"])
        self.norm = nn.BatchNorm1d(config["width"])
        self.scores = nn.Linear(config["width"], config["vocabulary"], bias=False)
        self.scores.weight = self.tokens.weight

    def forward(self, codes):
        return self.scores(self.norm(self.tokens(codes)))


SIZES = {"vocabulary": 7, "width": 4}


def equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        x, y = a[name].detach().array, b[name].detach().array
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes()), name


def test_a_model_comes_back_with_its_config_and_its_ties(tmp_path):
    model = Tied(SIZES).eval()
    save_pretrained(model, tmp_path / "m")
    assert sorted(os.listdir(tmp_path / "m")) == ["config.json", "model.safetensors"]
    about = read_config(tmp_path / "m")
    assert about == {**SIZES, "architectures": ["Tied"], "dtype": "float32"}
    again = from_pretrained(Tied, tmp_path / "m").eval()
    assert again.scores.weight is again.tokens.weight
    equal(model.state_dict(), again.state_dict())
    codes = dt.tensor([1, 5])
    assert model(codes).tolist() == again(codes).tolist()
    header = inspect(tmp_path / "m" / "model.safetensors")
    assert header.metadata["scores.weight"] == "tokens.weight"
    assert "scores.weight" not in header.entries and header.metadata["format"] == "pt"


def test_more_than_a_size_goes_into_several_files(tmp_path):
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(5)])
    save_pretrained(model, tmp_path, max_shard_size="2.3KB")
    names = sorted(n for n in os.listdir(tmp_path) if n.endswith(".safetensors"))
    assert names == [f"model-{k:05d}-of-00003.safetensors" for k in (1, 2, 3)]
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 5 * (16 * 16 + 16) * 4
    assert set(index["weight_map"]) == set(model.state_dict())
    equal(read_pretrained(tmp_path), model.state_dict())
    # Fewer files, then one: nothing old stays.
    save_pretrained(model, tmp_path, max_shard_size="4KB")
    assert len([n for n in os.listdir(tmp_path) if n.endswith(".safetensors")]) == 2
    equal(read_pretrained(tmp_path), model.state_dict())
    save_pretrained(model, tmp_path)
    assert os.listdir(tmp_path) == ["model.safetensors"]
    equal(read_pretrained(tmp_path), model.state_dict())


def test_groups_keep_the_order_and_the_limit():
    arrays = {n: np.zeros(k, np.uint8) for n, k in (("a", 3), ("b", 4), ("c", 9), ("d", 1))}
    assert [list(g) for g in split(arrays, 7)] == [["a", "b"], ["c"], ["d"]]
    assert split({}, 7) == [{}]


@pytest.mark.parametrize("kind", [dt.float16, dt.bfloat16, dt.float64, dt.int8, dt.bool])
def test_types_are_kept(tmp_path, kind):
    state = {
        "w": dt.ones(3, 2).to(kind),
        "empty": dt.zeros(0, 4).to(kind),
        "s": dt.ones(()).to(kind),
    }
    save_pretrained(state, tmp_path)
    equal(read_pretrained(tmp_path), state)


def test_parts_of_one_memory_are_tensors_of_their_own(tmp_path):
    whole = dt.arange(12.0).reshape(3, 4)
    state = {"whole": whole, "row": whole[1], "turned": whole.t(), "format": whole, "same": whole}
    save_pretrained(state, tmp_path)
    equal(read_pretrained(tmp_path), {n: t.contiguous() for n, t in state.items()})


def test_files_of_pytorch_are_read(tmp_path):
    model = Tied(SIZES)
    save(model.state_dict(), tmp_path / "pytorch_model.bin", format="torch")
    equal(read_pretrained(tmp_path), model.state_dict())
    (tmp_path / "pytorch_model.bin").rename(tmp_path / "a.bin")
    table = {"weight_map": dict.fromkeys(model.state_dict(), "a.bin")}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(table))
    equal(from_pretrained(Tied(SIZES), tmp_path).state_dict(), model.state_dict())


def test_a_tied_name_may_be_missing_in_files_of_others(tmp_path):
    state = {n: t for n, t in Tied(SIZES).state_dict().items() if n != "scores.weight"}
    save_pretrained(state, tmp_path)
    model = from_pretrained(Tied(SIZES), tmp_path)
    assert model.scores.weight.tolist() == state["tokens.weight"].tolist()
    del state["norm.weight"]
    save_pretrained(state, tmp_path)
    with pytest.raises(StateDictError, match=r"(?s)from_pretrained.*norm\.weight"):
        from_pretrained(Tied(SIZES), tmp_path)
    kept = Tied(SIZES)
    kept.norm.weight.data.fill_(3.0)
    assert from_pretrained(kept, tmp_path, strict=False).norm.weight.tolist() == [3.0] * 4


def test_one_of_many_ranks_writes(tmp_path):
    save_pretrained(Tied(SIZES), tmp_path / "none", is_main_process=False)
    assert not (tmp_path / "none").exists()


@dataclasses.dataclass
class Sizes:
    width: int = 4


class Object:
    def to_dict(self):
        return {"width": 4, "torch_dtype": "float16"}


@pytest.mark.parametrize("config", [{"width": 4}, Sizes(), Object()])
def test_configs_of_every_kind(tmp_path, config):
    save_pretrained({"w": dt.ones(2)}, tmp_path, config)
    about = read_config(tmp_path)
    assert about["width"] == 4
    assert about.get("dtype", about.get("torch_dtype")) in ("float32", "float16")
    assert "architectures" not in about  # a state dict has no class


@pytest.mark.parametrize(
    "state, config, options, said",
    [
        (3, None, {}, "int given; a module or a dict"),
        ({"a": 3}, None, {}, "'a' is int"),
        ({4: dt.ones(1)}, None, {}, "the key 4 is no text"),
        ({"a": dt.zeros(2, device="meta")}, None, {}, "meta device"),
        ({"a": dt.zeros(2, dtype=dt.complex128)}, None, {}, "'a' is complex128"),
        ({"a": dt.ones(1)}, 4, {}, "config is int"),
        ({"a": dt.ones(1)}, {"x": float("nan")}, {}, "no JSON can hold"),
        ({"a": dt.ones(1)}, {"x": object()}, {}, "no JSON can hold"),
        ({"a": dt.ones(1)}, None, {"max_shard_size": 0}, "max_shard_size=0"),
        ({"a": dt.ones(1)}, None, {"max_shard_size": None}, "max_shard_size=None"),
        ({"__metadata__": dt.ones(1)}, None, {}, "no tensor can be called '__metadata__'"),
        ({"a": dt.ones(1)}, None, {"max_shard_size": "much"}, "'much' given"),
    ],
)
def test_what_cannot_be_written(tmp_path, state, config, options, said):
    with pytest.raises((ConfigError, SerializationError), match=said):
        save_pretrained(state, tmp_path / "m", config, **options)


def index_of(folder, table):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))


@pytest.mark.parametrize(
    "table, said",
    [
        ({"a": "../x.safetensors"}, "no name of a file beside it"),
        ({"a": "/etc/passwd"}, "no name of a file beside it"),
        ({"a": 4}, "no name of a file beside it"),
        ([], "needs a weight_map"),
        ({"a": "b.safetensors"}, "is not there"),
        ({"a": "there.safetensors", "z": "there.safetensors"}, "not in it: z"),
        ({"a": "there.safetensors", "b": "twice.safetensors"}, "not in it: b"),
    ],
)
def test_folders_that_are_refused(tmp_path, table, said):
    save({"a": dt.ones(1)}, tmp_path / "there.safetensors")
    save({"a": dt.ones(1)}, tmp_path / "twice.safetensors")
    index_of(tmp_path, table)
    with pytest.raises(SerializationError, match=said):
        read_pretrained(tmp_path)


def test_what_is_no_model(tmp_path):
    with pytest.raises(ConfigError, match="is no folder"):
        read_pretrained(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"holds no model\.safetensors"):
        read_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="there is no such file"):
        from_pretrained(Tied, tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(SerializationError, match="an object is needed"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{" * 100)
    with pytest.raises(SerializationError, match="no valid JSON"):
        read_config(tmp_path)
    save({"a": {"b": dt.ones(1)}}, tmp_path / "model.safetensors")
    with pytest.raises(SerializationError, match="flat table"):
        read_pretrained(tmp_path)
    save_pretrained({"scores.weight": dt.ones(2, 2)}, tmp_path)
    with pytest.raises(StateDictError, match="size mismatch"):
        from_pretrained(Tied(SIZES), tmp_path, strict=False)


def test_threads_write_folders_of_their_own(tmp_path):
    model = Tied(SIZES)
    threads = [
        threading.Thread(target=save_pretrained, args=(model, tmp_path / str(k))) for k in range(6)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(6):
        equal(read_pretrained(tmp_path / str(k)), model.state_dict())


def test_a_folder_is_written_again_while_its_tensors_are_in_use(tmp_path):
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(3)])
    save_pretrained(model, tmp_path)
    state = read_pretrained(tmp_path)
    for size in ("2KB", "5GB"):
        save_pretrained(state, tmp_path, max_shard_size=size)
        equal(read_pretrained(tmp_path), model.state_dict())
        equal(state, model.state_dict())


def test_a_config_of_another_kind_is_left_alone(tmp_path):
    model = nn.Linear(2, 2)
    model.config = "a text"
    save_pretrained(model, tmp_path)
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_characters_have_codes(tmp_path):
    save_characters("ab\n", tmp_path)
    told = json.loads((tmp_path / "tokenizer.json").read_text())
    assert told["model"]["vocab"] == {"a": 0, "b": 1, "\n": 2}
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["tokenizer_class"]


def test_models_on_the_meta_device_take_the_files_tensors_and_keep_their_ties(tmp_path):
    model = Tied(SIZES)
    save_pretrained(model, tmp_path)
    with dt.device("meta"):
        empty = Tied(SIZES)
    with pytest.raises(StateDictError, match=r"meta device.*to_empty.*assign=True"):
        from_pretrained(empty, tmp_path)
    again = from_pretrained(empty, tmp_path, assign=True)
    assert again is empty and again.scores.weight is again.tokens.weight
    equal(model.state_dict(), again.state_dict())
    assert len(list(again.parameters())) == len(list(model.parameters()))
    loss = again(dt.tensor([1, 5])).sum()
    loss.backward()
    dt.optim.SGD(again.parameters(), 0.1).step()
    assert again.scores.weight.tolist() == again.tokens.weight.tolist()
    equal(model.state_dict(), read_pretrained(tmp_path))  # (the file is not written through)
