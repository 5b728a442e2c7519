"""Lines about a server."""

import json

from disttrain.serve import journal


def test_an_event_is_a_line_of_json(capfd) -> None:
    journal.tell("reload", why="a\nb\x1b", path=None)
    try:
        1 / 0
    except ZeroDivisionError as error:
        journal.fail(error)
    first, second = map(json.loads, capfd.readouterr().err.splitlines())
    assert (first["event"], first["level"], first["why"]) == ("reload", "info", "a\nb\x1b")
    assert first["time"].endswith("Z") and first["pid"] > 0
    assert second["event"] == "internal_error" and "test_journal.py" in second["traceback"]
