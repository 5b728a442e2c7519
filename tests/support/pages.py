"""The code of README and docs/: blocks between fences, and what comments say of them.

A comment of its own lines stands before a block and says what a reader need not see:

    <!-- not run: REASON -->    the block is left out
    <!-- ranks: N -->           a program of its own, on N ranks (1: as ``python FILE``)
    <!-- also: WORDS -->        words behind every command of the block
    <!-- status: N WORDS -->    the command that begins with these words ends with N
    <!-- needs: NAME -->        left out where no program or package of that name is installed
    <!-- before: ... -->        lines of Python that go before the block
    <!-- run: ... -->           lines of bash, run at that point

Python that says no number of ranks belongs to the page's one program, which runs on two ranks when
all of the page has been read. A block whose first line is ``# NAME.py`` is written to that file,
for the commands that follow. In a console, lines after ``$ `` are commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = ("python", "bash", "console")
SHOWN = ("text", "toml", "yaml", "json", "diff", "{include}", "{toctree}", "{eval-rst}")
_COMMENT = re.compile(r"<!-- *(not run|ranks|also|status|needs|before|run): *(.*?) *-->", re.DOTALL)
_FILE = re.compile(r"# ([\w/]+\.(?:py|toml))\n")


@dataclass
class Block:
    """``line``: of its first line of code, from 1. ``said``: what comments say of it."""

    language: str
    line: int
    text: str
    said: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str | None:
        """The file that it is."""
        found = _FILE.match(self.text)
        return found[1] if found else None

    @property
    def commands(self) -> str:
        """As a script of bash."""
        text = self.text
        if self.language == "console":
            text = "".join(f"{part[2:]}\n" for part in text.splitlines() if part.startswith("$ "))
        return "".join(f"{self._said_of(part)}\n" for part in text.splitlines())

    def _said_of(self, line: str) -> str:
        """A line of commands, with what comments add to it."""
        also, status = self.said.get("also", ""), self.said.get("status", "")
        number, _, words = status.partition(" ")
        bare = re.sub(r"\s{2,}#.*", "", line)
        if also and line and not line.endswith("\\"):
            return f"{bare} {also}"
        if status and line.startswith(words):
            return f"{{ {bare}; }} || test $? -eq {number}"
        return line


def blocks(path: Path) -> Iterator[Block]:
    """All blocks of a page, in order; hidden commands as blocks of their own."""
    lines = path.read_text().split("\n")
    said: dict[str, str] = {}
    at = 0
    while at < len(lines):
        begun = at
        if lines[at].startswith("<!--"):
            while "-->" not in lines[at]:
                at += 1
            found = _COMMENT.fullmatch("\n".join(lines[begun : at + 1]).strip())
            if found is not None and found[1] == "run":
                yield Block("bash", begun + 1, found[2] + "\n")
            elif found is not None:
                said[found[1]] = found[2]
        elif lines[at].startswith("```"):
            while lines[at := at + 1] != "```":
                pass
            text = "".join(f"{line}\n" for line in lines[begun + 1 : at])
            yield Block(lines[begun][3:], begun + 2, text, said)
            said = {}
        elif lines[at].strip() and said:
            raise ValueError(f"{path.name}:{at + 1}: a comment on code stands before a paragraph")
        at += 1


def left_out() -> list[str]:
    """Every block that is not run, with the reason."""
    return [
        f"{path.relative_to(ROOT)}:{block.line}: {block.said['not run']}"
        for path in PAGES
        for block in blocks(path)
        if "not run" in block.said
    ]
