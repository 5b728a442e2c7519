"""The page: one document with its style and its program, which needs nothing from elsewhere but
the plotting library, that comes from this machine, too."""

from __future__ import annotations

import importlib.util
import json
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import ConfigError

_ASKS = '<a href="/diff" id="diff">recordings</a>'  # needs the server
_NEEDED = "pip install 'disttrain[board]'"


def plotting_library() -> Path:
    """The file that the package plotly brings. Raises ``ConfigError`` where it is missing."""
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path
    raise ConfigError(f"board: the package plotly is missing, which draws the curves: {_NEEDED}")


def document(snapshot: dict[str, Any] | None = None) -> str:
    """The page; with ``snapshot`` (as ``server.snapshot`` makes it) one that asks nobody, in which
    the plotting library stands, too."""
    folder = resources.files(__package__) / "page"
    html, style, program = ((folder / name).read_text("utf-8") for name in
                            ("board.html", "board.css", "board.js"))  # fmt: skip
    if snapshot is None:
        library = '<script src="plotly.min.js"></script>'
        data = "null"
    else:
        library = f"<script>{plotting_library().read_text('utf-8')}</script>"
        html = html.replace(_ASKS, "")
        data = json.dumps(snapshot).replace("<", "\\u003c")
    parts = {
        "<!-- library -->": library,
        "<!-- style -->": f"<style>{style}</style>",
        "<!-- program -->": f"<script>const SNAPSHOT = {data};\n{program}</script>",
    }
    for place, text in parts.items():
        html = html.replace(place, text)
    return html
