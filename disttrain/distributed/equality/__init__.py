"""What must be equal on all ranks: values (``same``), and what ranks do (``same_step``).

From above; each file imports only those before it:

checks      the functions that programs call
replays     what they do in compiled functions
flow        what a rank does between two steps
exchange    messages that find what differs, once hashes do
ledger      what a rank has asked to be equal, folded into one digest
report      the text of what differs (pure)
leaves      a value as hashes of its parts
sites       the program's lines
"""

from ...errors import ValuesDiffer
from .checks import same, same_step

__outward__ = ("communication between ranks (disttrain.distributed.equality)", "")

__all__ = ["ValuesDiffer", "same", "same_step"]
