"""Vocabularies as GGUF files have them, for programs that turn texts into codes.

Byte-level pair encoding, as GPT-2 has it (Radford et al. 2019): a token is written with one
printable character for each of its bytes, and merges say which neighbours become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import ConfigError

NORMAL, CONTROL, UNUSED = 1, 3, 5  # ``tokenizer.ggml.token_type``


def _printable() -> dict[int, str]:
    """A printable character for every byte: its own where it has one, else one from 256 on."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in own]
    return {**{b: chr(b) for b in own}, **{b: chr(256 + k) for k, b in enumerate(other)}}


BYTES = _printable()


def written(text: str) -> str:
    """``text`` with one printable character for each of its bytes in UTF-8."""
    return "".join(BYTES[b] for b in text.encode())


@dataclass(frozen=True)
class Vocabulary:
    """``tokens``: texts as they are written in such files (``written``), by code. ``merges``: pairs
    with a space between them, the first first. ``special``: "bos", "eos", "unknown", "padding" ->
    code."""

    tokens: tuple[str, ...]
    merges: tuple[str, ...] = ()
    special: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Vocabulary | Sequence[str]) -> Vocabulary:
        """``given``, or that of a model of characters."""
        return given if isinstance(given, Vocabulary) else cls.of_characters(given)

    @classmethod
    def of_characters(cls, characters: Sequence[str]) -> Vocabulary:
        """One token for each character, by its place; those of several bytes are merged of them."""
        wrong = [c for c in characters if not isinstance(c, str) or len(c) != 1]
        if wrong or len(set(characters)) != len(characters):
            what = repr(wrong[0]) if wrong else "a character that stands twice"
            raise ConfigError(
                f"gguf: vocabulary has {what}; different single characters are needed"
            )
        tokens = [written(c) for c in characters]
        merges = [f"{t[:k]} {t[k]}" for t in tokens for k in range(1, len(t))]
        return cls(tuple(tokens), tuple(dict.fromkeys(merges)))

    def metadata(self, size: int) -> dict[str, Any]:
        """The keys of a model with ``size`` tokens; codes without a token are named as unused."""
        if len(self.tokens) > size:
            raise ConfigError(
                f"gguf: vocabulary has {len(self.tokens)} tokens; the model has {size}"
            )
        filled = [f"[PAD{k}]" for k in range(len(self.tokens), size)]
        kinds = [CONTROL if k in self.special.values() else NORMAL
                 for k in range(len(self.tokens))] + [UNUSED] * len(filled)  # fmt: skip
        return {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": [*self.tokens, *filled],
            "tokenizer.ggml.token_type": kinds,
            **({"tokenizer.ggml.merges": list(self.merges)} if self.merges else {}),
            **{f"tokenizer.ggml.{name}_token_id": code for name, code in self.special.items()},
        }
