"""Vocabularies of GGUF files."""

from __future__ import annotations

import pytest

from disttrain.errors import ConfigError
from disttrain.serialize.gguf.vocabulary import BYTES, Vocabulary, written


def test_every_byte_has_a_printable_character_of_its_own():
    assert len(set(BYTES.values())) == 256
    assert all(c.isprintable() and not c.isspace() for c in BYTES.values())
    assert (written("a b\n"), BYTES[ord("A")], BYTES[0]) == ("aĠbĊ", "A", "Ā")  # as GPT-2 has it


def test_characters_of_several_bytes_are_merged():
    made = Vocabulary.of_characters("aé€")
    assert made.tokens == ("a", "Ã©", "âĤ¬")
    assert made.merges == ("Ã ©", "â Ĥ", "âĤ ¬")


def test_codes_without_a_token_are_unused():
    made = Vocabulary.of_characters(["a", "b"])
    told = Vocabulary(made.tokens, special={"eos": 1}).metadata(4)
    assert told["tokenizer.ggml.tokens"] == ["a", "b", "[PAD2]", "[PAD3]"]
    assert told["tokenizer.ggml.token_type"] == [1, 3, 5, 5]
    assert told["tokenizer.ggml.eos_token_id"] == 1
    assert "tokenizer.ggml.merges" not in told


@pytest.mark.parametrize("given", [["ab"], ["a", "a"], [1], [""]])
def test_what_is_no_character(given):
    with pytest.raises(ConfigError, match="different single characters"):
        Vocabulary.of_characters(given)


def test_more_tokens_than_the_model_has():
    with pytest.raises(ConfigError, match="has 3 tokens; the model has 2"):
        Vocabulary.of_characters("abc").metadata(2)
