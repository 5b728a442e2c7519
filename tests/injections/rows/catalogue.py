"""All rows of the table, by name: a number, and a letter where there are several of it."""

from __future__ import annotations

import re

from injections.rows import elastic_rows, endings, joining, many_hosts, on_etcd, one_host, slow
from injections.rows.row import Row

_KINDS = (one_host, endings, many_hosts, on_etcd, elastic_rows, joining, slow)


def _place(row: Row) -> tuple[int, str]:
    return int(re.sub(r"\D", "", row.name)), row.name


ROWS: dict[str, Row] = {
    row.name: row for row in sorted((r for kind in _KINDS for r in kind.ROWS), key=_place)
}
