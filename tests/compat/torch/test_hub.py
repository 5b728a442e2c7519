"""Weights by address, kept on disk; models of a folder."""

from __future__ import annotations

import hashlib

import pytest

import disttrain as dt
from disttrain.compat.torch import hub, saving

pytestmark = pytest.mark.simulated
H = hub.modules()["torch.hub"]


@pytest.fixture(autouse=True)
def _kept_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    yield
    hub._chosen.clear()


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "net-0000.pth"
    saving.save({"w": dt.ones(2)}, str(path))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    named = tmp_path / f"net-{digest[:8]}.pth"
    path.rename(named)
    return named


def test_where_files_are_kept(tmp_path):
    assert H.get_dir() == str(tmp_path / "home" / "hub")
    H.set_dir(tmp_path / "other")
    assert H.get_dir() == str(tmp_path / "other")


def test_weights_are_fetched_once(weights, tmp_path, capsys):
    found = H.load_state_dict_from_url(weights.as_uri(), check_hash=True, progress=False)
    assert found["w"].tolist() == [1.0, 1.0] and "Downloading" in capsys.readouterr().err
    weights.unlink()
    assert H.load_state_dict_from_url(weights.as_uri())["w"].sum().item() == 2
    with pytest.raises(OSError):
        H.load_state_dict_from_url(weights.as_uri(), model_dir=str(tmp_path / "again"))
    assert list((tmp_path / "again").iterdir()) == []


def test_a_file_of_another_digest_is_refused(weights, tmp_path):
    with pytest.raises(RuntimeError, match="invalid hash value"):
        H.download_url_to_file(weights.as_uri(), str(tmp_path / "x"), hash_prefix="zz")
    assert not (tmp_path / "x").exists()


def test_models_of_a_folder(tmp_path):
    (tmp_path / "hubconf.py").write_text(
        "def net(n, bias=True):\n    '''A layer.'''\n    return [n, bias]\n\n"
        "def _own():\n    pass\n"
    )
    here = str(tmp_path)
    assert H.load(here, "net", 3, bias=False, source="local", trust_repo=True) == [3, False]
    assert H.list(here, source="local") == ["net"] and "layer" in H.help(
        here, "net", source="local"
    )
    with pytest.raises(RuntimeError, match="Cannot find callable"):
        H.load(here, "_own", source="local")
    with pytest.raises(dt.errors.ConfigError, match="local"):
        H.load("someone/repository", "net")
    with pytest.raises(FileNotFoundError):
        H.list(str(tmp_path / "none"), source="local")
