"""``disttrain board``: exports, what it says, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from disttrain.cli import board, main


@pytest.fixture
def parts(monkeypatch):
    """A board that serves nothing, and what it was asked for."""
    asked = SimpleNamespace(library=0, listened=[], served=[])

    def library():
        asked.library += 1

    def listen(host, port):
        asked.listened.append((host, port))
        return "listener"

    def serve(made, listener, ready):
        asked.served.append((made, listener))
        ready("http://127.0.0.1:1/#t")

    page = SimpleNamespace(
        plotting_library=library, document=lambda snapshot: f"page of {snapshot}"
    )
    server = SimpleNamespace(Board=lambda runs: f"board of {runs}", snapshot=lambda made: made,
                             listen=listen, serve=serve)  # fmt: skip
    found = {"disttrain.board.page": page, "disttrain.board.server": server}
    monkeypatch.setattr(board, "importlib", SimpleNamespace(import_module=found.__getitem__))
    monkeypatch.setattr(board.webbrowser, "open", lambda url: asked.served.append(url))
    return asked


def test_a_page_that_needs_no_server_is_written_whole_or_not_at_all(parts, tmp_path, capsys):
    path = tmp_path / "page.html"
    assert main(["board", "runs", "--export", str(path)]) == 0
    assert path.read_text() == "page of board of runs" and not parts.listened
    assert capsys.readouterr().out == f"disttrain board: written to {path}\n"
    assert main(["board", "runs", "--export", str(tmp_path / "none" / "page.html")]) == 2
    assert "cannot be written: No such file" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_the_address_is_printed_and_opened_where_that_is_asked_for(parts, capsys):
    assert main(["board", "runs", "--port", "0", "--host", "::1"]) == 0
    assert parts.listened == [("::1", 0)] and parts.served == [("board of runs", "listener")]
    told = capsys.readouterr()
    assert told.out == "disttrain board: runs at http://127.0.0.1:1/#t\n" and "Ctrl-C" in told.err
    assert main(["board", "runs", "--open"]) == 0
    assert parts.listened[1] == ("127.0.0.1", board._PORT) and parts.served[-1].startswith("http")
    assert parts.library == 2  # that it is missing is said before anything else
