"""Lines about a server."""

import json
import logging

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


def test_what_libraries_log_is_a_line_too(capfd) -> None:
    logger = logging.Logger("uvicorn.error")
    logger.addHandler(journal.Handler())
    logger.warning("no %s", "more", exc_info=ValueError("x"))
    line = json.loads(capfd.readouterr().err)
    assert (line["event"], line["level"], line["text"]) == ("uvicorn.error", "warning", "no more")
    assert line["error"] == "ValueError: x"
