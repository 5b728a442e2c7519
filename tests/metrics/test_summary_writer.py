"""What ``SummaryWriter`` writes is what TensorBoard reads."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import pytest

import disttrain as dt
from disttrain.metrics import SummaryWriter


def read(folder):
    """TensorBoard's own reader, of everything."""
    from tensorboard.backend.event_processing import event_accumulator as reader

    return reader.EventAccumulator(
        str(folder), size_guidance=dict.fromkeys(reader.DEFAULT_SIZE_GUIDANCE, 0)
    ).Reload()


def plugin(found, tag):
    return found.SummaryMetadata(tag).plugin_data


def test_numbers_and_text(tmp_path):
    with SummaryWriter(tmp_path) as w:
        for step in range(5):
            w.add_scalar(
                "loss", dt.tensor(1.0 / (step + 1)), dt.tensor(step), walltime=100.0 + step
            )
        w.add_scalar("exact", 0.1, 3, double_precision=True)
        w.add_scalar("new", 0.5, new_style=True)
        w.add_text("note", "**bold**", 2)
        w.add_tensor("tensor", dt.arange(6.0).reshape(2, 3), 1)
        with pytest.raises(AssertionError):
            w.add_scalar("loss", dt.ones(2))
        assert w.get_logdir() == str(tmp_path) == w.log_dir
    found = read(tmp_path)
    assert [(e.wall_time, e.step, e.value) for e in found.Scalars("loss")][1] == (101.0, 1, 0.5)
    from tensorboard.util import tensor_util

    values = {t: tensor_util.make_ndarray(found.Tensors(t)[0].tensor_proto) for t in
              ("exact", "new", "tensor")}  # fmt: skip
    assert values["exact"] == 0.1 and values["new"] == 0.5
    assert values["tensor"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert plugin(found, "exact").plugin_name == "scalars"
    assert found.Tensors("note/text_summary")[0].tensor_proto.string_val[0] == b"**bold**"


def test_several_numbers_are_runs_of_their_own(tmp_path):
    with SummaryWriter(tmp_path) as w:
        w.add_scalars("a/b", {"x": 1.0, "y": dt.tensor(2.0)}, 4)
    for name, value in (("x", 1.0), ("y", 2.0)):
        (event,) = read(tmp_path / f"a_b_{name}").Scalars("a/b")
        assert (event.step, event.value) == (4, value)


def test_histograms(tmp_path):
    with SummaryWriter(tmp_path) as w:
        w.add_histogram("auto", dt.tensor([0.0, 0.5, 0.5, -2.0]), 7)
        w.add_histogram("ten", np.arange(100), 7, bins=10, max_bins=5)
        w.add_histogram_raw("raw", 0, 3, 4, 6, 14, [1, 2, 4], [1, 1, 2])
        for wrong in (dt.zeros(0), np.array([])):
            with pytest.raises(ValueError, match="no element"):
                w.add_histogram("none", wrong)
        with pytest.raises(ValueError, match="bucket"):
            w.add_histogram_raw("raw", 0, 3, 4, 6, 14, [1, 2], [1])
    found = read(tmp_path)
    h = found.Histograms("auto")[0].histogram_value
    assert (h.min, h.max, h.num, h.sum, h.sum_squares) == (-2.0, 0.5, 4, -1.0, 4.5)
    assert sum(h.bucket) == 4 and len(h.bucket) == len(h.bucket_limit)
    assert h.bucket_limit[-1] > 0.5 and h.bucket_limit[0] < -1.8
    ten = found.Histograms("ten")[0].histogram_value
    assert sum(ten.bucket) == 100 and ten.bucket_limit[-1] == 99
    assert found.Histograms("raw")[0].histogram_value.bucket == [1.0, 1.0, 2.0]


def pixels(event):
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))


def test_pictures(tmp_path):
    colour = dt.rand(3, 4, 5)
    with SummaryWriter(tmp_path) as w:
        w.add_image("chw", colour, 1)
        w.add_image("hw", dt.arange(20, dtype=dt.uint8).reshape(4, 5), dataformats="HW")
        w.add_image("hwc", colour.permute(1, 2, 0), dataformats="HWC")
        w.add_images("grid", dt.rand(10, 1, 4, 5))
        w.add_image_with_boxes("boxes", dt.zeros(3, 20, 20), dt.tensor([[2, 3, 10, 12]]), rescale=2)
        w.add_video("video", dt.rand(2, 3, 3, 4, 5), fps=10)
        with pytest.raises(ValueError, match="same dimension"):
            w.add_image("bad", colour, dataformats="HHW")
        with pytest.raises(RuntimeError, match="are different"):
            w.add_image("bad", colour, dataformats="HW")
    found = read(tmp_path)
    (event,) = found.Images("chw")
    assert (event.width, event.height, event.step) == (5, 4, 1)
    want = (colour.permute(1, 2, 0) * 255).numpy().astype(np.uint8)
    assert np.array_equal(pixels(event), want)
    assert np.array_equal(pixels(found.Images("hwc")[0]), want)
    assert pixels(found.Images("hw")[0])[..., 0].tolist() == np.arange(20).reshape(4, 5).tolist()
    assert pixels(found.Images("grid")[0]).shape == (8, 40, 3)
    boxes = pixels(found.Images("boxes")[0])
    assert boxes.shape == (40, 40, 3) and (boxes[..., 0] == 255).sum() > 50
    assert pixels(found.Images("video")[0]).shape[:2] == (4, 10)


def test_figures(tmp_path):
    """By what matplotlib's figures have; it is not needed for the tests."""
    rgba = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    figure = SimpleNamespace(
        dpi=10, bbox=SimpleNamespace(size=(3.0, 2.0)),
        savefig=lambda file, format, dpi: file.write(rgba.tobytes()),
    )  # fmt: skip
    with SummaryWriter(tmp_path) as w:
        w.add_figure("one", figure, 3)
        w.add_figure("two", [figure, figure])
    found = read(tmp_path)
    assert np.array_equal(pixels(found.Images("one")[0]), rgba)
    assert pixels(found.Images("two")[0]).shape == (2, 6, 4)


def test_sound(tmp_path):
    with SummaryWriter(tmp_path) as w:
        w.add_audio("tone", dt.linspace(-1, 1, 50).reshape(1, -1), sample_rate=8000)
    (event,) = read(tmp_path).Audio("tone")
    assert event.sample_rate == 8000 and event.encoded_audio_string[:4] == b"RIFF"
    assert event.length_frames == 50 and event.content_type == "audio/wav"


def test_curves(tmp_path):
    from tensorboard.plugins.pr_curve import plugin_data_pb2
    from tensorboard.util import tensor_util

    labels, guesses = dt.tensor([0, 1, 1, 0, 1]), dt.tensor([0.1, 0.9, 0.6, 0.7, 0.2])
    with SummaryWriter(tmp_path) as w:
        w.add_pr_curve("pr", labels, guesses, 2, num_thresholds=11)
        row = np.linspace(1, 0, 5)
        w.add_pr_curve_raw("raw", row, row, row, row, row, row, num_thresholds=5)
    found = read(tmp_path)
    data = plugin_data_pb2.PrCurvePluginData.FromString(plugin(found, "pr").content)
    assert data.num_thresholds == 11 and plugin(found, "pr").plugin_name == "pr_curves"
    table = tensor_util.make_ndarray(found.Tensors("pr")[0].tensor_proto)
    assert table.shape == (6, 11) and table[:, 0].tolist()[:4] == [3.0, 2.0, 0.0, 0.0]
    assert table[4, 0] == pytest.approx(0.6) and table[5, 8] == pytest.approx(1 / 3)


def test_hyperparameters(tmp_path):
    from tensorboard.plugins.hparams import plugin_data_pb2

    with SummaryWriter(tmp_path) as w:
        w.add_hparams(
            {"lr": 0.1, "name": "adam", "nesterov": True, "layers": dt.tensor(3)}, {"acc": 0.9},
            {"name": ["adam", "sgd"]}, run_name="run", global_step=5,
        )  # fmt: skip
        with pytest.raises(TypeError):
            w.add_hparams([1], {})
        with pytest.raises(ValueError, match="should be one of"):
            w.add_hparams({"x": [1]}, {})
    found = read(tmp_path / "run")
    parts = {}
    for name in ("experiment", "session_start_info", "session_end_info"):
        content = plugin(found, f"_hparams_/{name}").content
        parts[name] = getattr(plugin_data_pb2.HParamsPluginData.FromString(content), name)
    kinds = {i.name: i.type for i in parts["experiment"].hparam_infos}
    assert kinds == {"lr": 3, "name": 1, "nesterov": 2, "layers": 3}
    assert [m.name.tag for m in parts["experiment"].metric_infos] == ["acc"]
    given = parts["session_start_info"].hparams
    assert given["lr"].number_value == 0.1 and given["name"].string_value == "adam"
    assert given["nesterov"].bool_value is True and parts["session_end_info"].status == 1
    discrete = parts["experiment"].hparam_infos[1].domain_discrete
    assert [v.string_value for v in discrete.values] == ["adam", "sgd"]
    assert found.Scalars("acc")[0].step == 5


def test_embeddings(tmp_path):
    from google.protobuf import text_format
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    points, faces = dt.rand(5, 3), dt.rand(5, 3, 2, 2)
    with SummaryWriter(tmp_path) as w:
        w.add_embedding(points, list("abcde"), faces, global_step=3, tag="a/b")
        w.add_embedding(points, [[1, 2]] * 5, metadata_header=["x", "y"])
        for wrong in ({"mat": dt.rand(5)}, {"mat": points, "metadata": ["a"]},
                      {"mat": points, "label_img": faces[:2]}):  # fmt: skip
            with pytest.raises(RuntimeError):
                w.add_embedding(**wrong)
    config = text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), ProjectorConfig())
    one, two = config.embeddings
    assert one.tensor_name == "a/b:00003" and list(one.sprite.single_image_dim) == [2, 2]
    read_back = np.loadtxt(tmp_path / one.tensor_path)
    assert np.allclose(read_back, points.numpy())
    assert (tmp_path / one.metadata_path).read_text().split() == list("abcde")
    assert (tmp_path / two.metadata_path).read_text().startswith("x\ty\n1\t2\n")
    assert (tmp_path / one.sprite.image_path).read_bytes()[:4] == b"\x89PNG"


def test_charts_and_meshes(tmp_path):
    from tensorboard.plugins.custom_scalar import layout_pb2
    from tensorboard.plugins.mesh import plugin_data_pb2

    with SummaryWriter(tmp_path) as w:
        w.add_custom_scalars(
            {"c": {"t": ["Multiline", ["a", "b"]], "m": ["Margin", ["a", "b", "c"]]}}
        )
        w.add_mesh("m", dt.rand(1, 4, 3), faces=dt.tensor([[[0, 1, 2]]]), config_dict={"k": 1})
        with pytest.raises(RuntimeError, match="3 tags"):
            w.add_custom_scalars_marginchart(["a"])
    with SummaryWriter(tmp_path / "two") as w:
        w.add_custom_scalars_multilinechart(["x"])
    found = read(tmp_path)
    held = found.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0]
    (category,) = layout_pb2.Layout.FromString(held).category
    lines, margin = category.chart
    assert list(lines.multiline.tag) == ["a", "b"] and margin.margin.series[0].upper == "c"
    data = plugin_data_pb2.MeshPluginData.FromString(plugin(found, "m_FACE").content)
    assert (data.name, list(data.shape), data.content_type) == ("m", [1, 1, 3], 2)


def test_graphs(tmp_path, capsys):
    model = dt.nn.Sequential(dt.nn.Linear(3, 4), dt.nn.ReLU(), dt.nn.Linear(4, 2))
    with SummaryWriter(tmp_path) as w:
        w.add_graph(model, dt.rand(5, 3), verbose=True)
    assert "Sequential/0/linear" in capsys.readouterr().out
    nodes = {n.name: n for n in read(tmp_path).Graph().node}
    linear = nodes["Sequential/2/linear"]
    assert linear.op == "linear" and list(linear.input) == [
        "Sequential/1/relu", "Sequential/2/weight", "Sequential/2/bias"]  # fmt: skip
    (shape,) = linear.attr["_output_shapes"].list.shape
    assert [d.size for d in shape.dim] == [5, 2] and nodes["input_0"].op == "input"


def test_the_folder_is_named_by_the_time_where_none_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="_x", filename_suffix=".end") as w:
        w.add_scalar("a", 1.0)
        w.flush()
    w.add_scalar("a", 2.0, 1)  # opens another file
    w.close()
    w.close()
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("_x") and len(list(folder.glob("*.end"))) == 2


def test_a_resumed_run_drops_what_it_does_again(tmp_path):
    for purge, last in ((None, 6), (3, 4)):
        with SummaryWriter(tmp_path, purge_step=purge) as w:
            for step in range(purge or 0, last):
                w.add_scalar("loss", float(step) + (purge or 0) * 10, step)
    values = [(e.step, e.value) for e in read(tmp_path).Scalars("loss")]
    assert values == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 33.0)]
