"""AutoGraph: Python's statements over values that have no numbers yet, as operations.

``convert(fn, border)`` gives ``fn`` with ``if``, ``while``, ``for``, ``and``, ``or``, ``not``,
conditional
expressions and ``assert`` asking a ``Border`` whether what they look at is staged. Where it is, the
border makes the operation; where not, Python goes on as Python does.
"""

from .conversion import converted, do_not_convert
from .statements import Border, Statements, Undefined

__all__ = ["Border", "Statements", "Undefined", "converted", "do_not_convert"]
