"""Settings of the documentation site (``scripts/docs``)."""

from __future__ import annotations

import inspect
import re
from typing import Any

import disttrain

project = "disttrain"
copyright = "the authors of disttrain"
version = release = disttrain.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
html_theme = "furo"
html_title = f"disttrain {version}"
default_role = "code"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]
autodoc_member_order = "alphabetical"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "imported-members": True, "exclude-members": "Any"}
autodoc_use_legacy_class_based = True

_CODE = re.compile(r"(``.*?``|`.*?`)", re.DOTALL)


def _paragraph(lines: list[str]) -> list[str]:
    """Prose with its marks escaped; indented lines, lists and tables as they stand."""
    if lines[0].startswith(" ") or any(line.startswith(("* ", "    ", "===")) for line in lines):
        return ["::", "", *(f"    {line}" for line in lines)]
    parts = _CODE.split("\n".join(lines))
    escaped = [p if i % 2 else re.sub(r"([*|_\\])", r"\\\1", p) for i, p in enumerate(parts)]
    return "".join(escaped).split("\n")


def _as_markup(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with code between backticks: made into Sphinx's markup."""
    text = inspect.cleandoc("\n".join(lines))
    made: list[str] = []
    for part in re.split(r"\n\s*\n", text):
        if part.strip():
            made += [*_paragraph(part.rstrip().split("\n")), ""]
    lines[:] = made


def _links_of_checkout(app: Any, docname: str, source: list[str]) -> None:
    """Links to files that stand beside docs/ in a checkout, and on no page, become their names."""
    up = r"\[([^\]]+)\]\((?:\.\./)+(?!README)[^)]*\)"
    source[0] = re.sub(
        up, lambda found: found[1] if "`" in found[1] else f"`{found[1]}`", source[0]
    )


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _as_markup)
    app.connect("source-read", _links_of_checkout)
