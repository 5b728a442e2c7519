"""Which device a rank trains on, and the random state that goes with it."""

from __future__ import annotations

from typing import Any

import disttrain as dt


def own_device(name: str) -> dt.device:
    """The device that the settings name, for this rank: of ``cuda`` the one that LOCAL_RANK counts
    to, from the first again where there are more ranks than devices. It becomes the current one.
    Raises ``DeviceError``, which says what is missing."""
    found = dt.device(name)
    if found.type != "cuda":
        return found
    dt.cuda.init()
    if found.index is None:
        local = dt.distributed.get_node_local_rank(fallback_rank=0)
        found = dt.device("cuda", local % dt.cuda.device_count())
    dt.cuda.set_device(found)
    return found


def rng_state(device: dt.device) -> Any:
    """What random numbers go on from, on the host and on the device."""
    if device.type == "cpu":
        return dt.get_rng_state()
    return {"cpu": dt.get_rng_state(), device.type: dt.cuda.get_rng_state(device)}


def set_rng_state(state: Any, device: dt.device) -> bool:
    """Go on from there; False where it is of another kind of device."""
    if isinstance(state, dict) != (device.type != "cpu"):
        return False
    if device.type == "cpu":
        dt.set_rng_state(state)
    else:
        dt.set_rng_state(state["cpu"])
        dt.cuda.set_rng_state(state[device.type], device)
    return True
