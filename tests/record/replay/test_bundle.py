"""A recording in one file."""

from __future__ import annotations

import zipfile

import pytest

from disttrain.errors import ConfigError
from disttrain.record.replay import bundle

pytestmark = pytest.mark.simulated


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "run"
    made.mkdir()
    for name in ("record.json", "rank_3.bin", "rank_3.names", "rank_3.data", "rank_4.bin"):
        (made / name).write_text("{}" if name == "record.json" else name)
    return made


def test_it_comes_back(folder, tmp_path):
    assert bundle.write(str(folder), 3, str(tmp_path / "b")) > 0
    (tmp_path / "new").mkdir()
    bundle.read(str(tmp_path / "b"), str(tmp_path / "new"))
    assert {p.name for p in (tmp_path / "new").iterdir()} == {
        "record.json", "rank_3.bin", "rank_3.names", "rank_3.data"
    }  # fmt: skip
    assert bundle.ranks_in(str(tmp_path / "new")) == [3]


def test_which_ranks_there_are(folder):
    assert bundle.ranks_in(str(folder), 3) == [3]
    with pytest.raises(ConfigError, match="these ranks received: 3"):
        bundle.ranks_in(str(folder), 4)
    (folder / "rank_5.data").write_text("")
    with pytest.raises(ConfigError, match="say which by --rank: 3, 5"):
        bundle.ranks_in(str(folder))
    with pytest.raises(ConfigError, match="is no folder"):
        bundle.ranks_in(str(folder / "no"))


@pytest.mark.parametrize("name", ["../x", "/etc/x", "rank_3.py", "sub/record.json"])
def test_other_files_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "b", "w") as file:
        file.writestr(name, "{}")
    with pytest.raises(ConfigError, match="no file of a recording"):
        bundle.read(str(tmp_path / "b"), str(tmp_path))


def test_what_is_no_bundle_is_said(tmp_path):
    (tmp_path / "b").write_text("no")
    with pytest.raises(ConfigError, match="no bundle"):
        bundle.read(str(tmp_path / "b"), str(tmp_path))


def test_a_place_that_cannot_be_written_is_said(folder, tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        bundle.write(str(folder), 3, str(tmp_path / "no" / "b"))
    with pytest.raises(ConfigError, match=r"rank_4\.names"):
        bundle.write(str(folder), 4, str(tmp_path / "b"))
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("b")]
