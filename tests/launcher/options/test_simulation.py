"""Flags of a simulated cluster: read, and written so that they are read again."""

from __future__ import annotations

import argparse

import pytest

from disttrain_launcher.options.simulation import Flags, add_flags, flags_of, words_of


def read(*words: str) -> Flags:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return flags_of(parser.parse_args(words))


def test_without_flags_nothing_is_set():
    assert read() == Flags() and words_of(Flags()) == []


@pytest.mark.parametrize(
    "flags",
    [
        Flags(seed=7, hosts=2, algorithm="ring"),
        Flags(latency="20us", bandwidth="10GB/s", local_latency="1us", local_bandwidth="1GB/s"),
        Flags(kill=("1@all_reduce:2", "2@*:3"), drop=("0@send:1",), delay=("0@*:1=50ms",)),
        Flags(straggler=("3=2x",), compute="5ms", explore=9, timeline="t.json"),
    ],
)
def test_words_give_the_flags_again(flags):
    assert read(*words_of(flags)) == flags


def test_faults_add_up_in_their_order():
    assert read("--kill", "2@*:1", "--kill", "1@*:1").kill == ("2@*:1", "1@*:1")


@pytest.mark.parametrize("words", [("--algorithm", "star"), ("--seed", "x"), ("--kill",)])
def test_what_is_no_flag_is_refused(words, capsys):
    with pytest.raises(SystemExit):
        read(*words)
    assert words[0] in capsys.readouterr().err
