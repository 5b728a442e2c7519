"""Ways of training that are applied to a module, which stays what it is."""

from ..fsdp import fully_shard
from .contract import _get_registry, contract
from .replicate import replicate
