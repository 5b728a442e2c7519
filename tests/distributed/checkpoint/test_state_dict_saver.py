"""Saves as programs ask for them: values with a state, older forms, saves beside."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint import state_dict_saver, tools
from disttrain.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from disttrain.errors import ConfigError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


class Stateful:
    def state_dict(self):
        return {"x": dt.ones(2)}

    def load_state_dict(self, state):
        pass


def test_values_with_a_state_are_asked_for_it(tmp_path: Path):
    about = dcp.save({"s": Stateful(), "n": 1}, checkpoint_id=tmp_path)
    assert sorted(about.state_dict_metadata) == ["n", "s.x"]
    assert tools.values(str(tmp_path))["s"]["x"].tolist() == [1.0, 1.0]


def test_the_older_form_warns_and_takes_any_coordinator(tmp_path: Path):
    def body():
        with pytest.warns(FutureWarning, match="use 'save'"):
            dcp.save_state_dict(
                {"n": dist.get_rank()}, dcp.FileSystemWriter(tmp_path), coordinator_rank=1
            )

    on_ranks(body)
    about = tools.read_manifest(str(tmp_path))
    assert about.world_size == 2 and tools.values(str(tmp_path)) == {"n": 0}


def test_where_to_must_be_said():
    for save in (dcp.save, dcp.async_save):
        with pytest.raises(ConfigError, match="neither checkpoint_id nor storage_writer given"):
            save({"a": 1})


def test_a_rank_alone_saves_for_itself(tmp_path: Path):
    def body():
        where = tmp_path / str(dist.get_rank())
        dcp.save({"r": dist.get_rank()}, checkpoint_id=where, no_dist=True)

    on_ranks(body)
    assert [tools.values(str(tmp_path / str(r))) for r in range(2)] == [{"r": 0}, {"r": 1}]


def test_beside_the_program_values_may_change(tmp_path: Path):
    for kind in AsyncCheckpointerType:
        value = dt.ones(2)
        future = dcp.async_save(
            {"a": value}, checkpoint_id=tmp_path / kind.value, async_checkpointer_type=kind
        )
        value.zero_()
        assert list(future.result(60).state_dict_metadata) == ["a"]
        assert tools.values(str(tmp_path / kind.value))["a"].tolist() == [1.0, 1.0]


def test_a_copy_that_fails_on_one_rank_fails_the_save_on_all(tmp_path: Path):
    class Odd:
        def __deepcopy__(self, memo):
            raise ValueError("not to be copied")

    def body():
        value = Odd() if dist.get_rank() == 1 else 3
        future = dcp.async_save({"a": value}, checkpoint_id=tmp_path / "c")
        return str(future.exception())

    first, second = on_ranks(body)
    assert first == second and "rank 1: ValueError: not to be copied" in first
    assert not (tmp_path / "c").exists()


def test_futures_of_copies_are_passed_on():
    for error in (None, ValueError("x")):
        staged, copied = Future(), Future()
        staged.add_done_callback(lambda s, c=copied: state_dict_saver._pass_on(s, c))
        if error is None:
            staged.set_result({"a": 1})
            assert copied.result() is None  # the values are not the program's business
        else:
            staged.set_exception(error)
            assert copied.exception() is error
