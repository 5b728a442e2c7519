"""Small things of elastic's utils: macros, variables, loggers."""

from __future__ import annotations

import logging

import pytest

from disttrain.compat.torch.elastic import texts


def test_macros_are_put_into_texts_alone():
    given = ["--rank=${local_rank}", 3, "$other", "a$$b"]
    assert texts.macros.substitute(given, "1") == ["--rank=1", 3, "$other", "a$b"]
    assert texts.macros.substitute([texts.macros.local_rank], "7") == ["7"]


def test_variables_that_must_be_set(monkeypatch):
    monkeypatch.setenv("SOME_WORD", "x")
    assert texts.get_env_variable_or_raise("SOME_WORD") == "x"
    monkeypatch.delenv("SOME_WORD")
    with pytest.raises(ValueError, match="SOME_WORD expected, but not set"):
        texts.get_env_variable_or_raise("SOME_WORD")


def test_a_logger_is_the_callers_at_the_level_asked_for(monkeypatch):
    monkeypatch.setenv("LOGLEVEL", "ERROR")
    assert texts.get_logger().name == __name__
    assert texts.get_logger("a.b").level == logging.ERROR
