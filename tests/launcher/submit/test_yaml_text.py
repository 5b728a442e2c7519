"""YAML of plain data: its lines, and that nothing changes its meaning."""

from __future__ import annotations

import pytest

from launcher.submit.yaml_text import documents


def test_a_document_of_maps_and_lists():
    found = documents([{"kind": "Job", "spec": {"args": ["-m", "train"], "count": 4, "more": {}}}])
    assert found == 'kind: Job\nspec:\n  args:\n    - "-m"\n    - train\n  count: 4\n  more: {}\n'


def test_documents_are_parted():
    assert documents([{"a": 1}, {"b": None}]) == "a: 1\n---\nb: null\n"


def test_maps_in_lists_stand_under_their_first_key():
    found = documents([{"env": [{"name": "A", "value": "1"}, {"name": "B"}]}])
    assert found == 'env:\n  - name: A\n    value: "1"\n  - name: B\n'


def test_lists_in_lists():
    assert documents([{"a": [[1, 2], []]}]) == "a:\n  - - 1\n    - 2\n  - []\n"


@pytest.mark.parametrize("word", ["no", "Yes", "ON", "null", "y", "1e3", "a: b", "", "#x", "a\nb"])
def test_what_reads_as_something_else_is_quoted(word):
    line = documents([{"a": word}])
    assert line.startswith('a: "') and line.endswith('"\n') and line.count("\n") == 1


def test_keys_are_quoted_alike():
    assert documents([{"on": True}]) == '"on": true\n'
