"""All rows of the table, by name."""

from __future__ import annotations

from injections.rows import elastic_rows, endings, many_hosts, one_host
from injections.rows.row import Row

ROWS: dict[str, Row] = {
    row.name: row
    for row in sorted(
        [*one_host.ROWS, *endings.ROWS, *many_hosts.ROWS, *elastic_rows.ROWS], key=lambda row: int(row.name[1:])
    )
}
