"""The log of a replay, and the words that start it."""

from __future__ import annotations

import json

import pytest

from disttrain.errors import ConfigError
from disttrain.record.log.frames import LogWriter
from disttrain.record.log.key import key
from disttrain.record.replay.options import Options, as_words, opened

pytestmark = pytest.mark.simulated


@pytest.fixture
def options(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Options(str(tmp_path), 3)


def write(options: Options, **meta) -> None:
    writer = LogWriter(f"{options.folder}/rank_3.data", key(make=True))
    writer.put(meta)
    writer.close()


def test_a_log_is_opened(options):
    write(options, k="process", format=2)
    assert len(opened(options).frames) == 1


def test_what_is_no_log_is_said(options):
    with pytest.raises(ConfigError, match="nothing that rank 3 received"):
        opened(options)
    write(options, k="step")
    with pytest.raises(ConfigError, match="no log of a rank"):
        opened(options)
    write(options, k="process", format=1)
    with pytest.raises(ConfigError, match="another version"):
        opened(options)


def test_words_are_the_options():
    words = as_words(Options("run", 3, until="step:2"))
    assert words[:2] == ["-m", "disttrain.record.replay"]
    assert Options(**json.loads(words[2])) == Options("run", 3, until="step:2")
