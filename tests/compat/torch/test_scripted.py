"""``torch.jit``: what it gives computes as it is written, and can be saved as a program."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import threading

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compat.torch import scripted
from disttrain.errors import CaptureError, SerializationError
from support.cases.exported import same

jit = scripted.jit()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.graph = nn.Linear(3, 4), 7  # (a name that a script has, too)

    def forward(self, x, scale=2.0):
        return self.fc(x).relu() * scale

    def other(self):
        return 5


def branched(x):
    return x if x.sum().item() > 0 else -x


@jit.script
def doubled(x):
    return x * 2


def file_of(script):
    file = io.BytesIO()
    jit.save(script, file)
    file.seek(0)
    return file


def test_scripts_run_as_they_are_written() -> None:
    @jit.script
    def double(x):
        """Twice."""
        return x + x

    @jit.ignore(drop=True)
    def ignored(x):
        return x

    assert isinstance(double, jit.ScriptFunction) and double.__doc__ == "Twice."
    assert double.name == "double" and list(inspect.signature(double).parameters) == ["x"]
    assert double(dt.ones(2)).tolist() == [2.0, 2.0] and ignored(3) == 3 and double(2) == 4
    assert jit.annotate(int, 4) == 4 and jit.isinstance(4, int) and not jit.is_scripting()
    assert jit.wait(jit.fork(double, dt.ones(1))).tolist() == [2.0]
    with pytest.raises(ZeroDivisionError):
        jit.wait(jit.fork(lambda: 1 // 0))
    assert jit.script(branched)(dt.ones(2)).tolist() == [1, 1]  # (whatever no program could do)

    class Point:
        pass

    assert jit.script(Point) is Point and jit.script(double) is double and jit.script(3) == 3


def test_a_module_keeps_its_attributes():
    net = Net()
    script = jit.script(net)
    assert isinstance(script, (jit.ScriptModule,)) and isinstance(script, Net)
    assert script.other() == 5 and script.graph == 7 and script.fc is net.fc
    assert type(script).__name__ == "Net" and script.state_dict().keys() == net.state_dict().keys()
    net.eval()
    assert not script.training and same(script(dt.ones(2, 3)), net(dt.ones(2, 3)))
    script.fc.weight.data.zero_()
    assert not net.fc.weight.any() and jit.script(script) is script
    with pytest.raises(AttributeError, match="nothing"):
        _ = script.nothing
    twin = copy.deepcopy(script)
    assert isinstance(twin, jit.ScriptModule) and twin.fc is not net.fc
    assert same(twin(dt.ones(2, 3)), net(dt.ones(2, 3)))
    assert isinstance(pickle.loads(pickle.dumps(script)), Net)


def test_functions_are_pickled_by_their_names():
    assert pickle.loads(pickle.dumps(doubled)) is doubled and copy.deepcopy(doubled) is doubled
    apart = pickle.loads(pickle.dumps(jit.script(branched)))
    assert isinstance(apart, jit.ScriptFunction) and apart(dt.ones(2)).tolist() == [1, 1]


def test_methods_and_static_ones():
    class Holder:
        k = 3

        @jit.script
        def method(self, x):
            return x * self.k

        @staticmethod
        @jit.script
        def apart(x):
            return x + 1

    assert Holder().method(dt.ones(1)).tolist() == [3] and Holder.apart(dt.ones(1)).tolist() == [2]


def test_saved_once_its_arguments_are_known(tmp_path):
    net = Net().eval()
    script = jit.script(net)
    with pytest.raises(CaptureError, match=r"not known; call it once, or use torch.jit.trace"):
        script.save(tmp_path / "m.pt")
    script(dt.ones(2, 3))
    script.save(str(tmp_path / "m.pt"))
    again = jit.load(str(tmp_path / "m.pt"), map_location="cpu")
    assert isinstance(again, jit.ScriptModule) and again.original_name
    for n in (1, 2, 7):
        assert same(again(dt.ones(n, 3)), net(dt.ones(n, 3)))
    assert {n for n, _ in again.named_parameters()} == {"fc.weight", "fc.bias"}
    assert same(jit.load(file_of(again))(dt.ones(4, 3)), net(dt.ones(4, 3)))
    again.save(tmp_path / "again.pt")
    assert "linear" in again.code and again.inlined_graph.nodes
    assert same(copy.deepcopy(again)(dt.ones(2, 3)), net(dt.ones(2, 3)))


def test_traces():
    net = Net().eval()
    trace = jit.trace(net, dt.ones(2, 3))
    assert same(trace(dt.ones(5, 3)), net(dt.ones(5, 3))) and "relu" in trace.code
    assert same(jit.load(file_of(trace))(dt.ones(5, 3)), net(dt.ones(5, 3)))
    double = jit.trace(lambda x, y: x + y, (dt.ones(2), dt.ones(2)))
    assert same(jit.load(file_of(double))(dt.ones(3), dt.ones(3)), dt.ones(3) * 2)
    assert [n.op for n in double.graph.nodes] == ["placeholder"] * 2 + ["call_function", "output"]
    assert jit.trace_module(net, {"forward": dt.ones(2, 3)}).program.inputs[0].name == "x"
    assert jit.trace(3) == 3 and jit.trace(net).other() == 5
    with pytest.warns(jit.TracerWarning, match="branched runs as it is written, and cannot"):
        odd = jit.trace(branched, dt.ones(2))
    assert odd(-dt.ones(2)).tolist() == [1, 1]
    with pytest.raises(CaptureError, match=r"test_scripted.py"):
        odd.save(io.BytesIO())


def test_what_can_be_no_program_is_refused_at_script():
    def parts(x):
        yield x

    async def later(x):
        return x

    for fn in (parts, later):
        with pytest.raises(CaptureError, match=rf"script: {fn.__name__} \(.*test_scripted"):
            jit.script(fn)
    with pytest.raises(CaptureError, match=r"is read at .*test_scripted.py"):
        jit.script(branched, example_inputs=[(dt.ones(2),)])
    given = jit.script(Net(), example_inputs=[(dt.ones(2, 3),)])
    assert jit.load(file_of(given))(dt.ones(4, 3)).shape == (4, 4)


def test_files_with_texts_and_wrong_ones(tmp_path):
    script = jit.script(Net(), example_inputs=[(dt.ones(2, 3),)])
    file = io.BytesIO()
    script.save(file, _extra_files={"labels.txt": "a b"})
    file.seek(0)
    texts = {"labels.txt": ""}
    jit.load(file, _extra_files=texts)
    assert texts == {"labels.txt": "a b"}
    with pytest.raises(CaptureError, match=r"torch.jit.save: Net given; what torch.jit.script"):
        jit.save(Net(), file)
    (tmp_path / "old.pt").write_bytes(b"PK\x03\x04" + bytes(60))
    with pytest.raises(SerializationError, match="zip archive"):
        jit.load(tmp_path / "old.pt")


def test_threads():
    script = jit.script(lambda x: x * 2)
    found: list = []

    def work():
        found.append(script(dt.ones(3)).tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [[2, 2, 2]] * 4
