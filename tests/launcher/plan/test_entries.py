"""Entries of the registry: what is believed, and what is damaged."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from launcher.plan.entries import Damaged, fields_of


@dataclass
class Entry:
    host: str
    ranks: int
    seconds: float = 1.0
    hosts: tuple[str, ...] = ()
    report: dict[str, Any] = field(default_factory=dict)


def read(**told: object) -> dict:
    return fields_of(Entry, json.dumps(told).encode())


def test_fields_that_are_there():
    assert read(host="a", ranks=2, hosts=["a", "b"]) == {
        "host": "a", "ranks": 2, "hosts": ("a", "b"),
    }  # fmt: skip


def test_what_only_another_version_has_is_left_out():
    assert read(host="a", ranks=2, colour="red") == {"host": "a", "ranks": 2}


def test_whole_numbers_are_seconds_too():
    assert read(host="a", ranks=2, seconds=3)["seconds"] == 3


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"host": "a"}, "it has no 'ranks'"), ({"host": 1, "ranks": 2}, "its 'host' is '1'"),
        ({"host": "a", "ranks": "2"}, "its 'ranks'"),
        ({"host": "a", "ranks": 2, "hosts": ["a", 1]}, "its 'hosts'"),
        ({"host": "a", "ranks": 2, "report": {"rank": "x"}}, r"its 'report\.rank'"),
    ],
)  # fmt: skip
def test_what_no_node_has_written(told, why):
    with pytest.raises(Damaged, match=why):
        read(**told)


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[" * 100000, b"[1]", b"null"])
def test_what_is_no_object(data):
    with pytest.raises(Damaged, match="JSON"):
        fields_of(Entry, data)
