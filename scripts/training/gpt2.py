"""The GPT of ``models.py`` as GPT-2 (Radford et al. 2019) in Hugging Face's names, and back.

What is different: there, query, key and value of all heads lie one behind the other, and layers of
attention keep their weights as [inputs, outputs].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from disttrain.errors import ConfigError

from .models import GPT
from .settings import Model

NAMES = {
    "tokens": "wte", "positions": "wpe", "norm": "ln_f",
    "norm1": "ln_1", "qkv": "attn.c_attn", "out": "attn.c_proj",
    "norm2": "ln_2", "up": "mlp.c_fc", "down": "mlp.c_proj",
}  # fmt: skip
_TURNED = ("qkv", "out", "up", "down")
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}


def _name(name: str) -> str:
    """Hugging Face's name of a parameter."""
    if name == "scores.weight":
        return "lm_head.weight"
    *front, layer, kind = name.split(".")
    return ".".join(["transformer", *("h" if f == "blocks" else f for f in front)]
                    + [NAMES[layer], kind])  # fmt: skip


def to_pretrained(model: GPT, settings: Model) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its state dict and its config, for ``save_pretrained`` and ``gguf.from_pretrained``."""
    state = {}
    for name, tensor in model.state_dict().items():
        layer, kind = name.split(".")[-2:]
        tensor = tensor.detach()
        if layer == "qkv":
            tensor = _by_part(tensor, settings.num_heads)
        turned = kind == "weight" and layer in _TURNED
        state[_name(name)] = tensor.t().contiguous() if turned else tensor
    return state, {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": _ACTIVATIONS[settings.activation],
        "vocab_size": model.tokens.weight.shape[0],
        "n_positions": model.block_size,
        "n_embd": settings.width,
        "n_inner": 4 * settings.width,
        "n_layer": settings.num_layers,
        "n_head": settings.num_heads,
        "layer_norm_epsilon": model.norm.eps,
        "resid_pdrop": settings.dropout,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def from_pretrained(state: Mapping[str, Any], config: Mapping[str, Any]) -> GPT:
    """The model of a state dict and a config in Hugging Face's names; ``ConfigError`` where they
    are of another form."""
    forms = {theirs: ours for ours, theirs in _ACTIVATIONS.items()}
    form = config.get("activation_function", "gelu_new")
    width, heads = config["n_embd"], config["n_head"]
    if config.get("model_type") != "gpt2" or form not in forms:
        raise ConfigError(
            f"config.json: model_type {config.get('model_type')!r} with activation_function "
            f"{form!r}; gpt2 with one of {', '.join(forms)} is needed"
        )
    if (config.get("n_inner") or 4 * width) != 4 * width:
        raise ConfigError(f"config.json: n_inner {config['n_inner']}; {4 * width} is needed")
    sizes = {"num_layers": config["n_layer"], "num_heads": heads, "width": width}
    settings = Model(name="gpt", activation=forms[form], **sizes)
    model = GPT(settings, config["vocab_size"], config["n_positions"])
    own, table = model.state_dict(), {}
    for name in own:
        layer, kind = name.split(".")[-2:]
        theirs = _name(name)
        if theirs == "lm_head.weight" and theirs not in state:  # tied
            theirs = "transformer.wte.weight"
        tensor = state[theirs]
        tensor = tensor.t() if kind == "weight" and layer in _TURNED else tensor
        table[name] = _by_head(tensor, heads) if layer == "qkv" else tensor
    model.load_state_dict(table)
    return model


def _by_part(tensor: Any, heads: int) -> Any:
    """Rows by head, then part, to rows by part, then head."""
    rest = tuple(tensor.shape[1:])
    return tensor.reshape(heads, 3, -1, *rest).transpose(0, 1).reshape(-1, *rest)


def _by_head(tensor: Any, heads: int) -> Any:
    rest = tuple(tensor.shape[1:])
    return tensor.reshape(3, heads, -1, *rest).transpose(0, 1).reshape(-1, *rest)
