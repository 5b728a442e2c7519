"""JAX's names for devices and processes."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax as jax
from disttrain import distributed as dist
from disttrain.compat.jax.parallel import MODULES, create_device_mesh, initialize
from disttrain.compat.jax.sharding import Mesh, put
from disttrain.compat.jax.sharding import PartitionSpec as P
from disttrain.context import Rank, attach
from disttrain.distributed.spmd import simulate
from support.simulated import on_ranks

hosts = MODULES["experimental.multihost_utils"]


def test_devices_of_one_process():
    with attach(Rank()):
        simulate(4)
        assert jax.device_count() == jax.local_device_count() == len(jax.devices("cpu")) == 4
        assert jax.process_index() == 0 and jax.process_count() == 1
        assert [d.process_index for d in jax.local_devices()] == [0] * 4
        assert create_device_mesh((2, 2)).shape == (2, 2)
        with pytest.raises(
            RuntimeError, match="Unknown backend: 'gpu' requested, but no platforms"
        ):
            jax.devices("gpu")
        jax.config.update("jax_num_cpu_devices", 4)
        with pytest.raises(RuntimeError, match="after the program has used"):
            jax.config.update("jax_num_cpu_devices", 5)
        initialize()
        assert hosts["process_allgather"]({"a": np.ones(2)})["a"].shape == (1, 2)


def test_processes_tell_each_other():
    def body():
        me = jax.process_index()
        assert jax.process_count() == 2 and jax.local_device_count() == 1
        with pytest.raises(RuntimeError, match="only be called once"):
            initialize()
        hosts["sync_global_devices"]("here")
        assert hosts["broadcast_one_to_all"]({"a": np.full(1, me)})["a"].tolist() == [0]
        assert hosts["process_allgather"](np.full(1, me), tiled=True).tolist() == [0, 1]
        mesh = Mesh(np.array(jax.devices()), ("x",))
        whole = hosts["host_local_array_to_global_array"](np.full(2, me, "f4"), mesh, P("x"))
        assert whole.shape == (4,) and not whole.is_fully_addressable
        local = hosts["global_array_to_host_local_array"](whole, mesh, P("x"))
        assert np.asarray(local).tolist() == [me, me]
        assert np.asarray(put(whole, jax.devices()[me])).tolist() == [0, 0, 1, 1]
        return hosts["process_allgather"](whole).tolist()

    assert on_ranks(body) == [[0, 0, 1, 1]] * 2
    assert not dist.is_initialized()
