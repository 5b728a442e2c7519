"""The page that shows where two recordings part (``dtrun --record``, ``disttrain diff``).

It is made whole here, as text without a program: links choose what is compared. Names come from the
folders that are there; none is made a path.
"""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from urllib.parse import quote

from ..errors import ConfigError
from ..record.diff import Result, diff, label
from ..record.reader import Row, read
from ..record.report import headline, lines
from ..record.rows import RECORD

_DEPTH = 5
_MOST = 200
_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; }
pre { background: #8881; padding: 1em; overflow-x: auto; white-space: pre-wrap; }
table { border-collapse: collapse; } td, th { padding: .2em .8em; text-align: left; }
tr.differs { background: #e5534b33; } .answer { font-size: 1.2em; font-weight: 600; }
"""


def find_recordings(root: str | Path) -> list[str]:
    """The folders below ``root`` that have one, by their names there."""
    found = []
    base = os.fspath(root)
    for folder, folders, files in os.walk(base):
        name = os.path.relpath(folder, base)
        folders[:] = [] if name.count(os.sep) >= _DEPTH else sorted(folders)
        if RECORD in files and name.isprintable():  # others have no address
            found.append(name)
        if len(found) >= _MOST:
            break
    return found


def document(root: str | Path, first: str = "", second: str = "") -> str:
    """The page: what there is to choose from, or what comparing two of them finds (one with
    itself: its ranks)."""
    names = find_recordings(root)
    if first in names and second in names:
        body = _compared(Path(root), first, second)
    elif first in names:
        body = f"<h2>{escape(first)} with</h2>{_links(names, first)}"
    else:
        body = f"<h2>Which one first?</h2>{_links(names, '')}" if names else _NONE
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>recordings</title>'
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>'
        f'<h1><a href="/diff">Recordings</a></h1>{body}</body></html>'
    )


_NONE = "<p>There are none here. <code>dtrun --record DIR train.py</code> makes one.</p>"


def _links(names: list[str], first: str) -> str:
    head = f"a={quote(first, safe='')}&amp;b=" if first else "a="
    items = [
        f'<li><a href="/diff?{head}{quote(n, safe="")}">'
        f"{escape(n)}{' (its ranks with each other)' if n == first else ''}</a></li>"
        for n in names
    ]
    return f"<ul>{''.join(items)}</ul>"


def _compared(root: Path, first: str, second: str) -> str:
    try:
        a = read(os.fspath(root / first))
        b = None if first == second else read(os.fspath(root / second))
        a.name = first
        if b is not None:
            b.name = second
        found = diff(a, b)
    except ConfigError as error:
        return f"<pre>{escape(str(error))}</pre>"
    said = lines(found)
    answer = headline(found.first) if found.first is not None else said[0]
    text = escape("\n".join(said))
    return f'<p class="answer">{escape(answer)}</p>{_table(found)}<pre>{text}</pre>'


def _table(found: Result) -> str:
    """What was equal before, what differs, what follows."""
    if found.first is None:
        return ""
    rows = [("equal", r) for r in found.before]
    rows += [(found.first.how, found.first.row), *((h or "equal", r) for h, r in found.following)]
    head = "<tr><th>step</th><th>rank</th><th>module</th><th>what</th><th>is</th><th>norm</th></tr>"
    return f"<table>{head}{''.join(_row(how, row) for how, row in rows)}</table>"


def _row(how: str, row: Row) -> str:
    cells = (row.step, row.rank, row.module, label(row).rstrip(","), how, f"{row.norm:.6g}")
    kind = "" if how == "equal" else ' class="differs"'
    return f"<tr{kind}>{''.join(f'<td>{escape(str(c))}</td>' for c in cells)}</tr>"


__all__ = ["document", "find_recordings"]
