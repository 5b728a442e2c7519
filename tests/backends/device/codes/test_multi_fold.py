"""Folds of many arrays at once."""

from disttrain.backends.device.codes import table as codes
from disttrain.backends.device.structs import Operand, Pointer, record


def test_folds_of_more_arrays_than_a_launch_takes_use_several():
    arrays = [Operand((3,), (4,), "float32")] * 130
    plan = codes.fold_many("squares").plan([Operand((130,), (8,), "float64"), *arrays])
    partly, _, more, joined = plan.launches
    assert (partly.values["count"], more.values["count"]) == (128, 2)
    assert more.values["p"][:3] == (Pointer(129), Pointer(130), 0)
    assert more.values["to"] == joined.values["part"] == Pointer(-1, 1024)
    assert joined.values["to"] == Pointer(0, 1024) and plan.scratch == 1024 + 256
    assert record(list(partly.fields)).itemsize < 4096
