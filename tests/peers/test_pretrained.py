"""Models that leave as folders and as GGUF files, run by transformers and by llama.cpp."""

from __future__ import annotations

import json

import pytest

LETTERS = "\n abcdefghijklmnopqrstuvwxyzé€.,"
PROMPT = "abc dé€ fg"


def of_example(dt):
    """A GPT of scripts/train.py with random weights, and its settings."""
    from training.models import GPT
    from training.settings import Model

    dt.manual_seed(0)
    settings = Model(name="gpt", num_layers=2, num_heads=4, width=64, activation="gelu_tanh")
    model = GPT(settings, len(LETTERS), 32).eval()
    with dt.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * dt.randn(parameter.shape))
    return model, settings


def by_llama_cpp(path):
    """Its logarithms of the chances of the next token after PROMPT, by token."""
    import xllamacpp

    asked = xllamacpp.CommonParams()
    asked.model.path, asked.n_ctx, asked.n_parallel = str(path), 32, 1
    asked.warmup, asked.verbosity, asked.cpuparams.n_threads = False, 0, 1
    asked.flash_attn_type = 0  # it computes in float16
    asked.cache_type_k = asked.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    answer = xllamacpp.Server(asked).handle_completions(
        {"prompt": PROMPT, "n_predict": 1, "temperature": -1.0, "logprobs": len(LETTERS)}
    )
    answer = json.loads(answer) if isinstance(answer, str) else answer
    assert answer["usage"]["prompt_tokens"] == len(PROMPT)
    told = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    found = {t["id"]: t["logprob"] for t in told}
    assert len(found) == len(LETTERS)
    return [found[code] for code in range(len(LETTERS))]


def chances(dt, scores):
    return dt.log_softmax(scores[0, -1].detach(), -1)


def apart(dt, a, b):
    return (dt.tensor(a) - dt.tensor(b)).abs().max().item()


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_transformers_reads_the_example_and_the_example_reads_it(tmp_path):
    import torch
    import transformers

    import disttrain as dt
    from disttrain.serialize import (
        read_config,
        read_pretrained,
        save_characters,
        save_pretrained,
    )
    from training import gpt2

    model, settings = of_example(dt)
    state, config = gpt2.to_pretrained(model, settings)
    codes = [[LETTERS.index(c) for c in PROMPT]]
    for size in ("5GB", "50KB"):
        save_pretrained(state, tmp_path / size, config, max_shard_size=size)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / size).eval()
        assert type(theirs).__name__ == "GPT2LMHeadModel"
        found = theirs(torch.tensor(codes)).logits.tolist()
        assert apart(dt, found, model(dt.tensor(codes)).tolist()) < 1e-5
        save_characters(LETTERS, tmp_path / size)
        tokens = transformers.AutoTokenizer.from_pretrained(tmp_path / size)
        assert tokens(PROMPT)["input_ids"] == codes[0] and tokens.decode(codes[0]) == PROMPT
        theirs.save_pretrained(tmp_path / "back", max_shard_size=size)
        back = tmp_path / "back"
        again = gpt2.from_pretrained(read_pretrained(back), read_config(back)).eval()
        assert again(dt.tensor(codes)).tolist() == model(dt.tensor(codes)).tolist()


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_llama_cpp_runs_the_example(tmp_path):
    import disttrain as dt
    from disttrain.serialize import gguf
    from training import gpt2

    model, settings = of_example(dt)
    whole = gguf.from_pretrained(*gpt2.to_pretrained(model, settings), vocabulary=LETTERS)
    codes = dt.tensor([[LETTERS.index(c) for c in PROMPT]])
    # Its gelu comes from a table of float16.
    for kind, near in (("F32", 1e-3), ("F16", 2e-3), ("Q8_0", 0.03)):
        path = tmp_path / f"{kind}.gguf"
        gguf.save(whole, path, type=kind)
        again = gpt2.from_pretrained(*gguf.to_pretrained(gguf.load(path))).eval()
        assert apart(dt, by_llama_cpp(path), chances(dt, again(codes)).tolist()) < near


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tied", [False, True])
def test_llama_cpp_runs_a_llama_of_transformers(tmp_path, tied):
    import torch
    import transformers

    import disttrain as dt
    from disttrain.serialize import gguf, read_config, read_pretrained

    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(LETTERS), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
            tie_word_embeddings=tied, bos_token_id=None, eos_token_id=None, initializer_range=0.2,
        )
    ).eval()  # fmt: skip
    theirs.save_pretrained(tmp_path)
    state = read_pretrained(tmp_path)
    whole = gguf.from_pretrained(state, read_config(tmp_path), vocabulary=LETTERS)
    gguf.save(whole, tmp_path / "m.gguf", type="F32")
    codes = torch.tensor([[LETTERS.index(c) for c in PROMPT]])
    found = torch.log_softmax(theirs(codes).logits[0, -1], -1).tolist()
    assert apart(dt, by_llama_cpp(tmp_path / "m.gguf"), found) < 1e-4
    again, config = gguf.to_pretrained(gguf.load(tmp_path / "m.gguf"))
    assert {n: t.tolist() for n, t in again.items()} == {n: t.tolist() for n, t in state.items()}
    assert (config["tie_word_embeddings"], config["rms_norm_eps"]) == (tied, 1e-6)
