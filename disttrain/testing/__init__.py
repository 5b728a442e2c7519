"""Tools for tests of distributed training: ``assert_equivalent`` compares ways of training a model
with one process. (``@pytest.mark.ranks`` comes with the package, too: docs/testing.md.)"""

from .differences import Difference
from .equivalence import NotEquivalent, assert_equivalent
from .plans import Plan, ddp, fsdp, single

__all__ = ["assert_equivalent", "ddp", "fsdp", "single", "Plan", "NotEquivalent", "Difference"]
