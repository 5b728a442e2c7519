"""What is asked of this machine."""

from __future__ import annotations

from standins import nvml as nvml_standin

from disttrain.doctor import facts, gpu


def test_what_is_asked_of_this_machine(tmp_path, monkeypatch):
    for name, value in nvml_standin.environment("mig").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        facts, "child", lambda program: '{"code": 0, "cuda": 13000, "version": "13.0"}'
    )
    (tmp_path / "dev/nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidiactl", "nvidia-modeset"):
        (tmp_path / "dev" / name).write_text("")
    for bus, kind, vendor in (("1b", "0x030200", "0x10de"), ("02", "0x020000", "0x10de")):
        folder = tmp_path / "sys/bus/pci/devices" / bus
        folder.mkdir(parents=True)
        (folder / "class").write_text(kind + "\n")
        (folder / "vendor").write_text(vendor + "\n")
    (tmp_path / ".dockerenv").write_text("")
    found = facts.gather(str(tmp_path))
    assert found.nodes == {"/dev/nvidia0": True, "/dev/nvidiactl": True}
    assert (found.hardware, found.container, found.module) == (("1b",), True, False)
    assert found.before == () and "cuda-bindings" in found.packages
    said = {f.name: f.value for f in gpu.judge(found)}
    assert "divided into 2 MIG instances" in said["device 0"]
    assert said["MIG"] == f"a process sees {found.machine.cards[0].migs[0]} alone"


def test_libraries_that_hide_others(tmp_path):
    for name in ("libnccl.so.2", "libcuda.so", "libm.so.6"):
        (tmp_path / name).write_text("")
    names = [path.rsplit("/", 1)[1] for path in facts._before(f"{tmp_path}:/nowhere:")]
    assert names == ["libcuda.so", "libnccl.so.2"]


def test_answers_that_are_none():
    assert facts._answer("raise OSError('no libcuda.so.1')") == {
        "error": "OSError: no libcuda.so.1"
    }
    assert facts._answer("pass") == {"error": "no answer"}
    assert facts._answer("print('{\"code\": 3}')") == {"code": 3}
