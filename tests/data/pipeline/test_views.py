"""Pipelines in front of a program that has elements and errors of another kind."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.data.pipeline.views import Settings, View, applied, offer, offered
from disttrain.graphs import Function, Spec


class Broken(Exception):
    """An error of the program's kind."""


class Lists(View):
    """Elements are Python's numbers and lists."""

    noun = "stream"
    unused = ("name",)

    @staticmethod
    def show_leaf(leaf):
        return leaf.tolist() if hasattr(leaf, "tolist") else leaf

    @staticmethod
    def show_spec(spec):
        return getattr(spec, "shape", spec)

    @staticmethod
    def parameter(name, value):
        return int(value) if name == "batch_size" else value

    @staticmethod
    def seed(own):
        return 3 if own is None else own

    @staticmethod
    def failed(kind, message):
        return Broken(f"{kind}: {message}")


offer(Lists, "from_tensors from_tensor_slices batch shuffle window concatenate load",
      map="Mapped", choose_from_datasets="Chosen")  # fmt: skip
ROWS = Lists.from_tensor_slices([1, 2, 3])


def test_functions_and_elements():
    seen = []
    made = ROWS.map(lambda x: seen.append(x) or [x, -x], name="pairs")
    assert list(made) == [[1, -1], [2, -2], [3, -3]] and seen[-3:] == [1, 2, 3]
    assert (
        made.title == "Mapped"
        and ROWS.title == "FromTensorSlices"
        and ROWS.map.__doc__ == dt.data.Pipeline.map.__doc__
    )
    assert ROWS.reduce(0, lambda s, x: s + x) == 6
    assert ROWS.batch("2").as_numpy_iterator().__next__().tolist() == [1, 2]
    assert list(ROWS.concatenate(Lists.from_tensors(7))) == [1, 2, 3, 7]
    assert list(ROWS.shuffle(3)) == list(ROWS.shuffle(3, seed=3))
    one = Lists.from_tensor_slices([0, 0])
    assert list(Lists.choose_from_datasets([ROWS], one.map(dt.tensor))) == [1, 2]
    with pytest.raises(ValueError, match="must be a callable"):
        ROWS.map(5)
    assert list(ROWS.apply(applied("batch")(2))) == [[1, 2], [3]]
    assert ROWS.apply(len) == 3 and bool(ROWS) and Lists.from_tensors(2).get_single_element() == 2


def test_views_inside_of_views():
    windows = ROWS.window(2)
    assert [list(w) for w in windows] == [[1, 2], [3]]
    assert [list(w) for w in windows.as_numpy_iterator()] == [[1, 2], [3]]
    assert windows.element_spec.element_spec == ()
    assert ROWS.batch(2).element_spec == (None,)


def test_errors_are_the_programs():
    with pytest.raises(Broken, match=r"invalid: Stream: batch_size=0 given"):
        ROWS.batch(0)
    with pytest.raises(Broken, match=r"invalid: .*more than one"):
        ROWS.get_single_element()
    with pytest.raises(TypeError, match="The stream is infinite"):
        len(Lists(dt.data.Pipeline.counter()))
    files = offered(Lists, "text_lines", "Lines", "Lines", filenames="paths")
    with pytest.raises(Broken, match="missing: /no/such; No such file"):
        list(files(paths="/no/such"))
    assert files.__name__ == "Lines"
    with pytest.raises(dt.errors.ConfigError):
        View(dt.data.Pipeline.range(2)).get_single_element()


def test_positions_and_files(tmp_path):
    it = iter(ROWS)
    next(it)
    state = it.state_dict()
    other = iter(ROWS)
    assert list(other) == [1, 2, 3]
    other.load_state_dict(state)
    assert list(other) == [2, 3] and other.element_spec == ()
    ROWS.save(tmp_path / "s")
    assert list(Lists.load(str(tmp_path / "s"))) == [1, 2, 3]


def test_options_go_along():
    made = ROWS.with_options(Settings(a=1, c=3)).with_options(Settings(b=2, c=None)).batch(2)
    assert made.options() == Settings(a=1, b=2, c=3) and ROWS.options() is None


def test_methods_of_any_number_of_arguments():
    zipped = offered(Lists, "zip", "Zip", structure="streams")
    for made in (zipped(ROWS, ROWS), zipped((ROWS, ROWS)), zipped(streams=(ROWS, ROWS), name="z")):
        assert list(made) == [(1, 1), (2, 2), (3, 3)]
    with pytest.raises(TypeError, match="pipelines are needed"):
        zipped(ROWS, 3)
    assert list(offered(Lists, "range", "Range", dtype="kind")(1, 4, kind="int32")) == [1, 2, 3]


def test_elements_in_a_traced_function_are_drawn_at_every_run():
    class Plain(View):
        """Elements are Tensors."""

        @staticmethod
        def show_spec(spec):
            return Spec(spec.shape, dt.int64)

    it = iter(Plain(dt.data.Pipeline.range(3)))
    traced = Function(lambda: next(it))
    assert [int(traced()) for _ in range(3)] == [0, 1, 2]
