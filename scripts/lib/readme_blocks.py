"""The Python blocks of a Markdown file as files of their own, for type checkers.

python scripts/lib/readme_blocks.py README.md FOLDER
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def main(source: str, folder: str) -> None:
    text = Path(source).read_text(encoding="utf-8")
    for number, block in enumerate(_BLOCK.findall(text)):
        Path(folder, f"block_{number}.py").write_text(block, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
