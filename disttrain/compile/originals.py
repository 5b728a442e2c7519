"""Code that stands for other code for the time being, which it keeps."""

from __future__ import annotations

import types
from typing import Any


class Original:
    """In the constants of code, as the last one: the code that it stands for."""

    def __init__(self, code: types.CodeType) -> None:
        self.code = code


def original_code(code: types.CodeType) -> types.CodeType:
    """What ``code`` stands for; else itself."""
    last: Any = code.co_consts[-1:]
    return last[0].code if last and type(last[0]) is Original else code
