"""JSON from anywhere."""

import json

import pytest

from disttrain.serve.documents import depth_bound, read, write
from disttrain.serve.refusal import Refused, shown


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"3",
        b"null",
        b"{",
        b'{"a": }',
        b"\xff",
        b'{"a": 1} x',
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_object_is_refused(text) -> None:
    with pytest.raises(Refused) as caught:
        read(text, 1 << 20, 32)
    assert caught.value.status == 400


def test_depth_is_limited_and_brackets_in_texts_are_none() -> None:
    deep = b'{"a":' + b"[" * 31 + b"]" * 31 + b"}"
    assert read(deep, 1 << 20, 32)
    with pytest.raises(Refused, match="nested more than 31"):
        read(deep, 1 << 20, 31)
    for text in ("[" * 100, "\\" + "[" * 100, '"' + "{" * 100):
        assert read(json.dumps({"id": text}).encode(), 1 << 20, 8) == {"id": text}
    with pytest.raises(Refused, match="nested"):  # a text that does not end hides nothing
        read(b'{"a": "' + b'", "b":' + b"[" * 100, 1 << 20, 8)
    wide = json.dumps({"a": [[1] * 3] * 100}).encode()
    assert depth_bound(wide) == 3 and read(wide, 1 << 20, 3)


def test_length_is_limited() -> None:
    with pytest.raises(Refused) as caught:
        read(b"{" + b" " * 100 + b"}", 100, 32)
    assert caught.value.status == 413


def test_numbers_that_are_none_are_written_as_they_are_read() -> None:
    text = write({"data": [float("nan"), float("inf"), -0.0]})
    assert text == b'{"data":[NaN,Infinity,-0.0]}'
    assert str(read(text, 100, 3)["data"]) == "[nan, inf, -0.0]"
    assert write("é") == b'"\\u00e9"'


def test_what_a_client_sent_is_repeated_in_part() -> None:
    assert shown("x" * 1000) == "'" + "x" * 55 + " ..."
    assert shown(10**6000) == "int"
    assert len(str(Refused(400, "y" * 10000))) == 400
