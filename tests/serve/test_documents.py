"""JSON from anywhere."""

import json

import numpy as np
import pytest

from disttrain.serve.documents import depth_bound, read, write, write_numbers
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


def test_numbers_are_written_as_others_write_them() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 64, 4000, np.uint64)
    for values in (
        *map(bits.view, (np.float64, np.float32, np.float16, np.int64, np.uint64)),
        np.array([np.nan, 1.0, -np.inf]), np.array([]), np.array([-0.0, 1e22, 5e-324, 1e16]),
    ):  # fmt: skip
        flat = values.tolist()
        assert write_numbers(flat) == write(flat).decode()


def test_the_encoding_is_guessed_as_json_is_guessed() -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        for text in ('{"a": "\u00e9"}', ' {"a": "\u00e9"}'):
            assert read(text.encode(encoding), 100, 4) == {"a": "\u00e9"}
    for wrong in (b"{", b"", b'{"a": "\xff"}', b"{\0", b'{"a": 1} x'):
        with pytest.raises(Refused, match="not valid JSON"):
            read(wrong, 100, 4)
