"""Checkpoints of a folder."""

from __future__ import annotations

from disttrain.serialize.series import Series, list_anew, listed, members


def test_the_last_are_kept(tmp_path):
    made = Series(str(tmp_path), 2, suffix=".index")
    for i in range(4):
        path = str(tmp_path / f"c-{i}")
        (tmp_path / f"c-{i}.index").write_text("")
        made.add(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c-2.index", "c-3.index", "checkpoint"]
    assert listed(tmp_path) == made.paths == Series(str(tmp_path), 2).paths
    assert [p[-3:] for p in made.paths] == ["c-2", "c-3"]
    made.add(made.paths[0])  # written again: it is the last now
    assert [p[-3:] for p in made.paths] == ["c-3", "c-2"]


def test_a_folder_is_moved(tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    list_anew(old, [str(old / "a"), str(old / "b")])
    assert (old / "checkpoint").read_text().startswith('model_checkpoint_path: "b"\n')
    old.rename(tmp_path / "new")
    assert listed(tmp_path / "new") == [str(tmp_path / "new" / n) for n in "ab"]
    assert listed(tmp_path) == []


def test_one_that_does_not_write(tmp_path):
    made = Series(str(tmp_path), 1)
    made.add(str(tmp_path / "a"), writes=False)
    assert list(tmp_path.iterdir()) == [] and len(made.paths) == 1


def test_members_once_each():
    shared = {"x": 1}
    tree = {"a": shared, "b": [shared, 2], "c": {}}
    tree["c"]["up"] = tree  # a circle
    pairs = lambda v: v.items() if isinstance(v, dict) else list(enumerate(v))
    leaf = lambda v: isinstance(v, int)
    assert list(members(tree, pairs, leaf)) == [("a/x", 1), ("b/1", 2)]
