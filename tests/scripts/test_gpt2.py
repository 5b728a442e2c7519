"""The example's GPT as GPT-2: the same scores by GPT-2's own definition, and all the way back."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import ConfigError
from disttrain.serialize import gguf, read_config, read_pretrained, save_pretrained
from training import gpt2
from training.models import GPT
from training.settings import Model

F = dt.nn.functional
LETTERS = "\n abcdefé"


def made(activation="gelu_tanh"):
    dt.manual_seed(3)
    settings = Model(name="gpt", num_layers=2, num_heads=4, width=32, activation=activation)
    model = GPT(settings, len(LETTERS), 12).eval()
    with dt.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * dt.randn(parameter.shape))
    return model, settings


def scores_of(state, config, codes):
    """GPT-2 by its definition, with weights as Hugging Face keeps them."""
    heads, width = config["n_head"], config["n_embd"]

    def norm(x, name):
        return F.layer_norm(x, (width,), state[name + ".weight"], state[name + ".bias"])

    def layer(x, name):
        return x @ state[name + ".weight"] + state[name + ".bias"]

    x = state["transformer.wte.weight"][codes] + state["transformer.wpe.weight"][: codes.shape[1]]
    for number in range(config["n_layer"]):
        block = f"transformer.h.{number}."
        q, k, v = layer(norm(x, block + "ln_1"), block + "attn.c_attn").split(width, -1)
        parts = [t.reshape(*codes.shape, heads, -1).transpose(1, 2) for t in (q, k, v)]
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + layer(seen.transpose(1, 2).reshape(x.shape), block + "attn.c_proj")
        form = {"gelu": "none", "gelu_new": "tanh"}[config["activation_function"]]
        inner = F.gelu(layer(norm(x, block + "ln_2"), block + "mlp.c_fc"), form)
        x = x + layer(inner, block + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ state["lm_head.weight"].t()


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_it_is_gpt2(tmp_path, activation):
    model, settings = made(activation)
    state, config = gpt2.to_pretrained(model, settings)
    save_pretrained(state, tmp_path, config)
    state, config = read_pretrained(tmp_path), read_config(tmp_path)
    codes = dt.tensor([[3, 1, 4, 1, 5], [0, 8, 2, 6, 5]])
    assert (scores_of(state, config, codes) - model(codes)).abs().max().item() < 1e-5
    again = gpt2.from_pretrained(state, config).eval()
    assert again(codes).tolist() == model(codes).tolist()


@pytest.mark.parametrize("kind, near", [("F32", 0.0), ("F16", 2e-3), ("Q8_0", 0.06)])
def test_it_comes_back_from_gguf(tmp_path, kind, near):
    model, settings = made()
    whole = gguf.from_pretrained(*gpt2.to_pretrained(model, settings), vocabulary=LETTERS)
    gguf.save(whole, tmp_path / "m.gguf", type=kind)
    again = gpt2.from_pretrained(*gguf.to_pretrained(gguf.load(tmp_path / "m.gguf"))).eval()
    codes = dt.tensor([[3, 1, 4, 1, 5]])
    assert (again(codes) - model(codes)).abs().max().item() <= near


def test_tied_weights_and_other_forms():
    model, settings = made()
    state, config = gpt2.to_pretrained(model, settings)
    del state["lm_head.weight"]
    again = gpt2.from_pretrained(state, config)
    assert again.scores.weight.tolist() == model.tokens.weight.tolist()
    for change, said in (
        ({"model_type": "bert"}, "model_type 'bert'"),
        ({"activation_function": "relu"}, "'relu'"),
        ({"n_inner": 5}, "n_inner 5"),
    ):
        with pytest.raises(ConfigError, match=said):
            gpt2.from_pretrained(state, {**config, **change})
