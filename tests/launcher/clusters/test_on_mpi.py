"""A whole job whose agents mpiexec has started, on two names of this machine."""

import pytest

from disttrain.errors import LaunchError
from launcher.clusters.hostfile import command


def test_every_host_of_a_file_gets_its_own_slots():
    words = command("mpiexec", False, [("a", 4), ("b", 0)], "2", ["--tee", "3", "t.py"])
    first, second = " ".join(words).split(" : ")
    assert first.startswith("mpiexec -hosts a,b -ppn 1 -n 1 ") and second.startswith("-n 1 ")
    assert first.endswith("--cluster mpi --nproc-per-node 4 --tee 3 t.py")
    assert second.endswith("--cluster mpi --nproc-per-node 2 --tee 3 t.py")
    assert "--host a:1,b:1" in " ".join(command("m", True, [("a", 4), ("b", 0)], "2", ["t.py"]))
    assert "--cluster" not in command("mpiexec", False, [("a", 4)], "2", ["t.py"])
    with pytest.raises(LaunchError, match="a is there twice; give it slots=N"):
        command("mpiexec", False, [("a", 1), ("a", 1)], "2", ["t.py"])
