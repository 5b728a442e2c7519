"""Models of known architectures, between Hugging Face's names and llama.cpp's.

``from_pretrained(state, config)`` takes the state dict and the ``config.json`` of such a model
and gives a ``GGUF``; ``to_pretrained`` is the way back. An architecture is a row: names of tensors,
names of settings, and what is done to weights on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core import Tensor
from ...errors import ConfigError, SerializationError
from .file import GGUF
from .vocabulary import Vocabulary

Config = dict[str, Any]
Change = Callable[[Tensor, Config], Tensor]


@dataclass(frozen=True)
class Architecture:
    """``names``: Hugging Face's name -> llama.cpp's, N for the number of a block. ``settings``: key
    (behind the architecture's name) -> setting. ``change``: by Hugging Face's name, what becomes of
    a weight, and its reverse."""

    name: str
    blocks: str  # the setting that counts them
    prefix: str  # that state dicts of a whole model have in front, and of its trunk have not
    names: dict[str, str]
    settings: dict[str, str]
    defaults: Config = field(default_factory=dict)
    change: dict[str, tuple[Change, Change]] = field(default_factory=dict)
    fixed: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # what llama.cpp computes alone
    ignored: str = r"(?!)"  # names that hold no weights
    head: str = "lm_head.weight"
    embedding: str = ""

    def pairs(self, blocks: int) -> Iterator[tuple[str, str, str]]:
        """The pattern, Hugging Face's name and llama.cpp's, of every tensor that may be there."""
        for theirs, ours in self.names.items():
            for number in range(blocks) if ".N." in theirs else (0,):
                yield theirs, theirs.replace(".N.", f".{number}."), ours.replace("N", str(number))


def _both(pairs: Mapping[str, str]) -> dict[str, str]:
    """Each with its weight and its bias."""
    return {f"{a}.{kind}": f"{b}.{kind}" for a, b in pairs.items() for kind in ("weight", "bias")}


def _turned(weight: Tensor, config: Config) -> Tensor:
    return weight.t().contiguous()


def _rotated(heads: str) -> tuple[Change, Change]:
    """Rows of queries and keys: Hugging Face's rotary embedding pairs the first half of a head with
    the second, llama.cpp's pairs neighbours."""

    def there(weight: Tensor, config: Config) -> Tensor:
        return _swapped(weight, config[heads], (2, -1))

    def back(weight: Tensor, config: Config) -> Tensor:
        return _swapped(weight, config[heads], (-1, 2))

    return there, back


def _swapped(weight: Tensor, heads: int, parts: tuple[int, int]) -> Tensor:
    if weight.shape[0] % (2 * heads):
        raise ConfigError(f"gguf: {weight.shape[0]} rows for {heads} heads; pairs are needed")
    rest = tuple(weight.shape[1:])
    return weight.reshape(heads, *parts, *rest).transpose(1, 2).reshape(weight.shape)


_GPT2 = Architecture(
    "gpt2",
    "n_layer",
    "transformer.",
    {
        "transformer.wte.weight": "token_embd.weight",
        "transformer.wpe.weight": "position_embd.weight",
        **_both({
            "transformer.h.N.ln_1": "blk.N.attn_norm",
            "transformer.h.N.attn.c_attn": "blk.N.attn_qkv",
            "transformer.h.N.attn.c_proj": "blk.N.attn_output",
            "transformer.h.N.ln_2": "blk.N.ffn_norm",
            "transformer.h.N.mlp.c_fc": "blk.N.ffn_up",
            "transformer.h.N.mlp.c_proj": "blk.N.ffn_down",
            "transformer.ln_f": "output_norm",
        }),
        "lm_head.weight": "output.weight",
    },
    {
        "context_length": "n_positions",
        "embedding_length": "n_embd",
        "feed_forward_length": "n_inner",
        "block_count": "n_layer",
        "attention.head_count": "n_head",
        "attention.layer_norm_epsilon": "layer_norm_epsilon",
    },
    {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "layer_norm_epsilon": 1e-5},
    {  # these layers keep [inputs, outputs]
        f"transformer.h.N.{name}.weight": (_turned, _turned)
        for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    },
    {"activation_function": ("gelu_new", "gelu", "gelu_pytorch_tanh", "gelu_fast"),
     "scale_attn_weights": (True,), "add_cross_attention": (False,)},
    r".*\.attn\.(bias|masked_bias)\Z",
    embedding="transformer.wte.weight",
)  # fmt: skip

_LLAMA = Architecture(
    "llama",
    "num_hidden_layers",
    "model.",
    {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.layers.N.input_layernorm.weight": "blk.N.attn_norm.weight",
        **{f"model.layers.N.self_attn.{x}_proj.weight": f"blk.N.attn_{y}.weight"
           for x, y in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"))},
        "model.layers.N.post_attention_layernorm.weight": "blk.N.ffn_norm.weight",
        **{f"model.layers.N.mlp.{x}_proj.weight": f"blk.N.ffn_{x}.weight"
           for x in ("gate", "up", "down")},
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    },
    {
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "feed_forward_length": "intermediate_size",
        "block_count": "num_hidden_layers",
        "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads",
        "attention.layer_norm_rms_epsilon": "rms_norm_eps",
        "rope.freq_base": "rope_theta",
        "rope.dimension_count": "head_dim",
        "attention.key_length": "head_dim",
        "attention.value_length": "head_dim",
        "vocab_size": "vocab_size",
    },
    {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-6,
     "rope_theta": 10000.0},
    {"model.layers.N.self_attn.q_proj.weight": _rotated("num_attention_heads"),
     "model.layers.N.self_attn.k_proj.weight": _rotated("num_key_value_heads")},
    {"hidden_act": ("silu", "swish"), "partial_rotary_factor": (1,)},
    r".*\.rotary_emb\.inv_freq\Z",
    embedding="model.embed_tokens.weight",
)  # fmt: skip

ARCHITECTURES = {a.name: a for a in (_GPT2, _LLAMA)}
_FLOATS = ("epsilon", "freq_base")


def from_pretrained(
    state: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    vocabulary: Vocabulary | Sequence[str] | None = None,
    name: str = "",
) -> GGUF:
    """The model of a state dict and a config in Hugging Face's names (``read_pretrained``,
    ``read_config``) as llama.cpp has it. ``config["model_type"]`` says which architecture it is.

    ``vocabulary``: the tokens, for programs that turn texts into codes: a ``Vocabulary``, or the
    characters of a model of characters. ``ConfigError`` names tensors and settings that are
    missing, unknown, or mean what llama.cpp does otherwise.
    """
    row = _row(config.get("model_type"), "config.json: model_type")
    told = _settings(row, config, state)
    state = _under(row, state)
    out = GGUF({}, {"general.architecture": row.name, **({"general.name": name} if name else {})})
    for key, setting in row.settings.items():
        if told.get(setting) is not None:
            value = told[setting]
            out.metadata[f"{row.name}.{key}"] = float(value) if key.endswith(_FLOATS) else value
    used: set[str] = set()
    for pattern, theirs, ours in row.pairs(min(told[row.blocks], len(state) + 1)):
        if theirs in state:
            used.add(theirs)
            _check_shape(row, theirs, state[theirs])
            change = row.change.get(pattern)
            tensor = state[theirs] if change is None else change[0](state[theirs], told)
            out.tensors[ours] = tensor
        elif theirs != row.head:
            raise ConfigError(f"gguf: the state dict has no {theirs!r}, which {row.name} needs")
    extra = [n for n in state if n not in used and not re.match(row.ignored, n)]
    if extra:
        raise ConfigError(f"gguf: {row.name} has no place for {', '.join(extra[:8]):.300}")
    if vocabulary is not None:
        out.metadata |= Vocabulary.of(vocabulary).metadata(len(state[row.embedding]))
    return out


def to_pretrained(model: GGUF) -> tuple[dict[str, Tensor], Config]:
    """The state dict and the config of a GGUF model, in Hugging Face's names; quantized weights as
    float32. The reverse of ``from_pretrained``."""
    row = _row(model.metadata.get("general.architecture"), "general.architecture")
    config = dict(row.defaults)
    for key, setting in row.settings.items():
        found = model.metadata.get(f"{row.name}.{key}")
        if found is not None:
            config[setting] = _decimal(found)
    try:
        _complete(row, config)
        _check_numbers(row, config)
    except ConfigError as error:
        raise SerializationError(f"{error}; the file is damaged or of another kind") from None
    blocks = min(config[row.blocks], len(model.tensors) + 1)  # that many are never there
    state: dict[str, Tensor] = {}
    used: set[str] = set()
    for pattern, theirs, ours in row.pairs(blocks):
        if ours in model.tensors:
            used.add(ours)
            change = row.change.get(pattern)
            tensor = model.tensors[ours]
            _check_shape(row, theirs, tensor)
            state[theirs] = tensor if change is None else change[1](tensor, config)
        elif theirs != row.head:
            raise SerializationError(f"gguf: there is no tensor {ours!r}, which {row.name} needs")
    extra = [n for n in model.tensors if n not in used]
    if extra:
        raise SerializationError(f"gguf: {row.name} has no tensor {', '.join(extra[:8]):.300}")
    config["vocab_size"] = len(state[row.embedding])
    config["tie_word_embeddings"] = row.head not in state
    return state, config


def _decimal(value: Any) -> Any:
    """A float32 as people have written it: 1e-06, not 9.99999997e-07."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _row(name: object, where: str) -> Architecture:
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ConfigError(
            f"gguf: {where} is {name!r:.80}; known architectures are {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]


def _check_shape(row: Architecture, name: str, tensor: Any) -> None:
    """Vectors are vectors, and matrices matrices."""
    flat = name.endswith(".bias") or "norm" in name or ".ln_" in name
    if getattr(tensor, "ndim", None) != (1 if flat else 2):
        shape = list(getattr(tensor, "shape", ()))
        raise ConfigError(f"gguf: {name!r} has the shape {shape}, which {row.name} has not")


def _under(row: Architecture, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state dict under the names of a whole model, without what gradients need."""
    plain = {n: t.detach() if isinstance(t, Tensor) else t for n, t in state.items()}
    if row.embedding in plain:
        return plain
    return {n if n == row.head else row.prefix + n: t for n, t in plain.items()}


def _settings(row: Architecture, config: Mapping[str, Any], state: Mapping[str, Any]) -> Config:
    """The settings that the architecture has, with what may be left out."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise ConfigError(f"gguf: config.json: rope_scaling is {rope!r:.40}; an object is needed")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ConfigError(
            f"gguf: config.json: rope_scaling is {kind!r}; only the plain one is known"
        )
    for key in ("attention_bias", "mlp_bias", "scale_attn_by_inverse_layer_idx"):
        if config.get(key):
            raise ConfigError(f"gguf: config.json: {key} is set; {row.name} has none in llama.cpp")
    given = {k: v for k, v in {**config, **rope}.items() if v is not None}
    for key, known in row.fixed.items():
        if key in given and given[key] not in known:
            raise ConfigError(
                f"gguf: config.json: {key} is {given[key]!r:.40}; for {row.name}, llama.cpp "
                f"computes {known[0]!r} whatever a file says"
            )
    told = {**row.defaults, **given}
    told.setdefault("n_positions", given.get("n_ctx"))
    _complete(row, told)
    _check_numbers(row, told)
    return told


def _check_numbers(row: Architecture, config: Config) -> None:
    """Counts and factors are such."""
    for key, setting in row.settings.items():
        kinds = (int, float) if key.endswith(_FLOATS) else int
        value = config.get(setting)
        fine = isinstance(value, kinds) and not isinstance(value, bool) and value > 0
        if not fine and setting != "vocab_size":
            raise ConfigError(
                f"gguf: {setting} ({row.name}.{key}) is {value!r:.40}; {row.name} needs a number "
                "above 0"
            )


def _complete(row: Architecture, config: Config) -> None:
    """Settings that follow from others."""
    if row is _GPT2 and isinstance(config.get("n_embd"), int):
        config["n_inner"] = config.get("n_inner") or 4 * config["n_embd"]
    heads = config.get("num_attention_heads")
    if row is _LLAMA and isinstance(heads, int) and heads > 0:
        config["num_key_value_heads"] = config.get("num_key_value_heads") or heads
        if isinstance(config.get("hidden_size"), int):
            config["head_dim"] = config.get("head_dim") or config["hidden_size"] // heads
