"""All rows of the table, by name."""

from __future__ import annotations

from injections.rows import elastic_rows, endings, joining, many_hosts, one_host
from injections.rows.row import Row

_KINDS = (one_host, endings, many_hosts, elastic_rows, joining)
ROWS: dict[str, Row] = {
    row.name: row
    for row in sorted((r for kind in _KINDS for r in kind.ROWS), key=lambda r: int(r.name[1:]))
}
