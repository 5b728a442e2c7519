"""Models between Hugging Face's names and llama.cpp's: names, weights, settings."""

from __future__ import annotations

import gguf as package
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, SerializationError
from disttrain.serialize import gguf
from disttrain.serialize.gguf.architectures import ARCHITECTURES

GPT2 = {
    "model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 8, "n_positions": 6, "vocab_size": 5
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 16,
    "num_key_value_heads": 2, "intermediate_size": 12, "max_position_embeddings": 6,
    "vocab_size": 5, "rms_norm_eps": 1e-6, "rope_theta": 5e5,
}  # fmt: skip
HEADS = {"k_proj": (8, 16), "v_proj": (8, 16), "q_proj": (16, 16), "o_proj": (16, 16)}
LAYERS = {
    "wte": (5, 8), "wpe": (6, 8), "c_attn": (8, 24), "c_fc": (8, 32), "mlp.c_proj": (32, 8),
    "attn.c_proj": (8, 8), "lm_head": (5, 8), "embed_tokens": (5, 16), "gate_proj": (12, 16),
    "up_proj": (12, 16), "down_proj": (16, 12), "layernorm": (16,), "model.norm": (16,),
    "ln_": (8,), **HEADS,
}  # fmt: skip


def state_of(config, head=True):
    """Random weights of an architecture."""
    row, dt_state = ARCHITECTURES[config["model_type"]], {}
    dt.manual_seed(1)
    for _, name, _ in row.pairs(2):
        shape = next(s for word, s in LAYERS.items() if word in name)
        shape = (5, 16) if name == "lm_head.weight" and row.name == "llama" else shape
        dt_state[name] = dt.randn(shape[-1:] if name.endswith(".bias") else shape)
    if not head:
        del dt_state["lm_head.weight"]
    return dt_state


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_there_and_back(tmp_path, config, head):
    state = state_of(config, head)
    made = gguf.from_pretrained(state, config, vocabulary="abcd", name="tiny")
    gguf.save(made, tmp_path / "m.gguf", type="F32")
    again, about = gguf.to_pretrained(gguf.load(tmp_path / "m.gguf"))
    assert again.keys() == state.keys()
    assert all(again[n].numpy().tobytes() == state[n].numpy().tobytes() for n in state)
    assert {k: about[k] for k in config} == config
    assert about["tie_word_embeddings"] is not head
    reader = package.GGUFReader(tmp_path / "m.gguf")
    assert reader.get_field("general.architecture").contents() == config["model_type"]
    assert reader.get_field("tokenizer.ggml.tokens").contents() == [*"abcd", "[PAD4]"]


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_names_and_keys_are_those_of_the_package(config):
    made = gguf.from_pretrained(state_of(config), config)
    kind = package.MODEL_ARCH[config["model_type"].upper()]
    table = package.get_tensor_name_map(kind, 2)
    for name in state_of(config):
        layer, _, end = name.rpartition(".")
        assert f"{table.get_name(layer)}.{end}" in made.tensors, name
    keys = {v.replace("{arch}", config["model_type"]) for group in vars(package.Keys).values()
            if isinstance(group, type) for k, v in vars(group).items()
            if not k.startswith("_") and isinstance(v, str)}  # fmt: skip
    assert set(made.metadata) <= keys, set(made.metadata) - keys


def test_linear_layers_are_turned_and_heads_rotated():
    state = state_of(GPT2)
    made = gguf.from_pretrained(state, GPT2).tensors
    turned = state["transformer.h.1.attn.c_attn.weight"].t()
    assert made["blk.1.attn_qkv.weight"].tolist() == turned.tolist()
    # One head of 4: rows 0 1 2 3 become 0 2 1 3, pairs side by side (convert_hf_to_gguf's order).
    heads = {**LLAMA, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16}
    state = state_of(LLAMA)
    state["model.layers.0.self_attn.q_proj.weight"] = dt.arange(256.0).reshape(16, 16)
    made = gguf.from_pretrained(state, heads).tensors
    rows = made["blk.0.attn_q.weight"][:, 0].div(16).tolist()
    assert rows == [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]


def test_a_trunk_without_its_prefix_and_buffers_without_weights():
    state = {n.removeprefix("transformer."): t for n, t in state_of(GPT2).items()}
    state["h.0.attn.bias"] = dt.ones(1, 1, 6, 6)
    made = gguf.from_pretrained(state, GPT2)
    assert len(made.tensors) == len(state) - 1
    state["h.0.more"] = dt.ones(1)
    with pytest.raises(ConfigError, match=r"no place for transformer\.h\.0\.more"):
        gguf.from_pretrained(state, GPT2)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"model_type": "bert"}, "known architectures are gpt2, llama"),
        ({"model_type": None}, "model_type is None"),
        ({"n_layer": 3}, r"no 'transformer\.h\.2\.ln_1\.weight'"),
        ({"n_positions": None}, "n_positions .gpt2.context_length. is None"),
        ({"n_head": 0}, "n_head .* is 0; gpt2 needs a number above 0"),
        ({"n_layer": "2"}, "n_layer .* is '2'"),
        ({"n_embd": True}, "n_embd .* is True"),
        ({"layer_norm_epsilon": "x"}, "layer_norm_epsilon .* is 'x'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling is 'yarn'"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'; an object is needed"),
        ({"attention_bias": True}, "attention_bias is set"),
        ({"activation_function": "relu"}, "activation_function is 'relu'; .*computes 'gelu_new'"),
        ({"scale_attn_weights": False}, "scale_attn_weights is False"),
    ],
)
def test_configs_that_are_refused(change, said):
    with pytest.raises(ConfigError, match=said):
        gguf.from_pretrained(state_of(GPT2), {**GPT2, **change})


def test_what_llama_cpp_computes_in_one_way_alone():
    for change, said in (
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ):
        with pytest.raises(ConfigError, match=said):
            gguf.from_pretrained(state_of(LLAMA), {**LLAMA, **change})
    gguf.from_pretrained(state_of(LLAMA), {**LLAMA, "hidden_act": "silu", "attention_bias": False})


def test_files_that_are_of_no_architecture():
    made = gguf.from_pretrained(state_of(GPT2), GPT2)
    for change, said in (
        ({"general.architecture": "mamba"}, "general.architecture is 'mamba'"),
        ({"gpt2.block_count": 1 << 40}, "no tensor 'blk.2"),
        ({"gpt2.block_count": -1}, "block_count"),
        ({"gpt2.attention.head_count": 0}, "head_count.* damaged"),
        ({"gpt2.block_count": "2"}, "block_count"),
        ({"gpt2.block_count": 3}, "no tensor 'blk.2"),
        ({"gpt2.block_count": 1}, "has no tensor blk.1"),
    ):
        bad = gguf.GGUF(made.tensors, {**made.metadata, **change})
        with pytest.raises((ConfigError, SerializationError), match=said):
            gguf.to_pretrained(bad)


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.0.attn_q.weight"])
def test_shapes_that_no_such_model_has(name):
    made = gguf.from_pretrained(state_of(LLAMA), LLAMA)
    for shape in ((), (3,), (2, 2, 2), (7, 16)):
        bad = gguf.GGUF({**made.tensors, name: dt.ones(shape)}, made.metadata)
        if len(shape) == 2 and name == "token_embd.weight":
            continue  # fewer tokens
        with pytest.raises(ConfigError, match=r"has the shape|7 rows for 4 heads"):
            gguf.to_pretrained(bad)
    with pytest.raises(ConfigError, match="has the shape"):
        gguf.from_pretrained({**state_of(LLAMA), "model.norm.weight": dt.ones(2, 2)}, LLAMA)
