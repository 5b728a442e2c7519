"""``SummaryWriter``: what a run shows in TensorBoard, under the names of
``torch.utils.tensorboard``."""

from __future__ import annotations

import datetime
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..drawing import traced
from . import graphs, onnx_graph, pictures, projector, summaries
from .pictures import numbers
from .tensorboard import EventWriter


def _number(value: Any) -> float:
    array = numbers(value)
    if array.size != 1:
        raise AssertionError("scalar should be 0D: a tensor of one element is needed")
    return float(array.reshape(())[()])


def _step(step: Any) -> int | None:
    return None if step is None else int(step)


class SummaryWriter:
    """Writes event files for TensorBoard into ``log_dir`` (None: ``runs/`` with the time, the host
    and ``comment``).

    Every call is on disk when it returns: ``max_queue`` and ``flush_secs`` have nothing to wait
    for. ``purge_step``: what was written of this step and later ones before is dropped.
    ``walltime``, where a method has it, is in seconds since 1970 (None: now); ``global_step`` may
    be a tensor.
    """

    def __init__(
        self, log_dir: str | os.PathLike | None = None, comment: str = "",
        purge_step: int | None = None, max_queue: int = 10, flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:  # fmt: skip
        if not log_dir:
            now = datetime.datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self.purge_step = purge_step
        self.filename_suffix = filename_suffix
        self.all_writers: dict[str, EventWriter] | None = {}
        self._get_file_writer()

    def _get_file_writer(self) -> EventWriter:
        """The writer of the run's own file, opened anew after ``close``."""
        return self._writer(self.log_dir)

    def _writer(self, folder: str) -> EventWriter:
        if self.all_writers is None:
            self.all_writers = {}
        found = self.all_writers.get(folder)
        if found is None:
            purge = self.purge_step if folder == self.log_dir else None
            found = self.all_writers[folder] = EventWriter(folder, purge, self.filename_suffix)
        return found

    @property
    def file_writer(self) -> EventWriter:
        """The writer of the run's own file."""
        return self._get_file_writer()

    def get_logdir(self) -> str:
        """The folder of the run."""
        return self.log_dir

    def _add(self, values: bytes, step: Any, walltime: float | None) -> None:
        self._get_file_writer().summary(values, _step(step), walltime)

    # --- numbers and text ---------------------------------------------------------------------
    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: Any = None, walltime: float | None = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """A number of ``tag``."""
        value = _number(scalar_value)
        if new_style or double_precision:
            kind = "float64" if double_precision else "float32"
            self._add(summaries.scalar_tensor(tag, value, kind), global_step, walltime)
        else:
            self._add(summaries.scalar(tag, value), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Several numbers in one chart: a run of its own for each, in a folder of its name."""
        for tag, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            values = summaries.scalar(main_tag, _number(value))
            self._writer(folder).summary(values, _step(global_step), walltime)

    def add_tensor(
        self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """A tensor as it is."""
        self._add(summaries.tensor(tag, numbers(tensor)), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Markdown."""
        self._add(summaries.text(tag, text_string), global_step, walltime)

    def add_histogram(
        self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow",
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """How the elements of ``values`` are spread; ``bins`` are those of numpy's histogram, or
        "tensorflow"."""
        made = summaries.histogram(tag, numbers(values), bins, max_bins)
        self._add(made, global_step, walltime)

    def add_histogram_raw(
        self, tag: str, min: float, max: float, num: float, sum: float,  # noqa: A002
        sum_squares: float, bucket_limits: Sequence[float], bucket_counts: Sequence[float],
        global_step: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """A histogram that the program has made: of each bucket its upper limit and its count."""
        facts = (min, max, num, sum, sum_squares)
        made = summaries.histogram_raw(tag, *facts, list(bucket_limits), list(bucket_counts))
        self._add(made, global_step, walltime)

    # --- pictures and sound ---------------------------------------------------------------------
    def add_image(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """A picture: bytes, or numbers from 0 to 1."""
        picture = pictures.pixels(img_tensor, dataformats)
        self._add(summaries.image(tag, picture), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """A batch of pictures in one."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_image_with_boxes(
        self, tag: str, img_tensor: Any, box_tensor: Any, global_step: Any = None,
        walltime: float | None = None, rescale: float = 1, dataformats: str = "CHW",
        labels: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """A picture with boxes (count, left, top, right, bottom) around parts of it. ``labels``
        are not drawn: there are no letters here."""
        boxes = numbers(box_tensor)
        if isinstance(labels, Sequence) and len(labels) != len(boxes):
            labels = None
        picture = pictures.with_boxes(pictures.pixels(img_tensor, dataformats), boxes, labels)
        scaled = pictures.scaled(picture, rescale)
        self._add(summaries.image(tag, scaled), global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: Any = None, close: bool = True,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """A figure of matplotlib, or several in one picture; ``close`` them then."""
        figures = figure if isinstance(figure, list) else [figure]
        drawn = [pictures.drawn(f) for f in figures]
        if isinstance(figure, list):
            self.add_images(tag, np.stack(drawn), global_step, walltime, "NHWC")
        else:
            self._add(summaries.image(tag, drawn[0]), global_step, walltime)
        pyplot = sys.modules.get("matplotlib.pyplot")
        for f in figures if close and pyplot is not None else ():
            pyplot.close(f)  # type: ignore[union-attr]

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: Any = None, fps: float = 4,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Moving pictures (batch, time, channels, height, width), the batch side by side, as an
        animated PNG."""
        array = numbers(vid_tensor)
        batch, time_, channels, height, width = array.shape
        side_by_side = array.transpose(1, 3, 0, 4, 2).reshape(
            time_, height, batch * width, channels
        )
        frames = [pictures.pixels(frame, "HWC") for frame in side_by_side]
        data = summaries.png(frames[0], frames[1:], fps)
        made = summaries.encoded_image(tag, data, height, batch * width, frames[0].shape[2])
        self._add(made, global_step, walltime)

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: Any = None, sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Sound of one channel, in [-1, 1]."""
        samples = numbers(snd_tensor).squeeze()
        made = summaries.audio(tag, samples.reshape(-1, 1).astype(np.float64), sample_rate)
        self._add(made, global_step, walltime)

    # --- what plugins show -----------------------------------------------------------------------
    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:  # fmt: skip
        """The operations of ``model(*input_to_model)``, by module."""
        given = input_to_model if isinstance(input_to_model, (tuple, list)) else (input_to_model,)
        graph = traced(model, *given)
        if verbose:
            print(graph.text())
        self._get_file_writer().graph(graphs.definition(graph))

    def add_onnx_graph(self, prototxt: str | Path) -> None:
        """The operations of the ONNX file ``prototxt``."""
        self._get_file_writer().graph(onnx_graph.definition(prototxt))

    def add_embedding(
        self, mat: Any, metadata: Sequence | None = None, label_img: Any = None,
        global_step: Any = None, tag: str = "default", metadata_header: Sequence | None = None,
    ) -> None:  # fmt: skip
        """Points (count, dimensions) for the projector, with a label and a picture each."""
        step = f"{_step(global_step) or 0:05d}"
        place = f"{step}/{tag.replace('/', '%2f')}"
        projector.write_embedding(
            Path(self.log_dir), place, mat, metadata, metadata_header, label_img, f"{tag}:{step}"
        )

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: Any = None,
        num_thresholds: int = 127, weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Precision and recall of ``predictions`` (probabilities) of ``labels`` (0 or 1)."""
        count = min(num_thresholds, 127)
        weight = 1.0 if weights is None else numbers(weights).reshape(-1)
        wanted = numbers(labels).reshape(-1).astype(np.float64)
        table = summaries.pr_table(wanted, numbers(predictions).reshape(-1), count, weight)
        self._add(summaries.pr_curve(tag, table, count), global_step, walltime)

    def add_pr_curve_raw(
        self, tag: str, true_positive_counts: Any, false_positive_counts: Any,
        true_negative_counts: Any, false_negative_counts: Any, precision: Any, recall: Any,
        global_step: Any = None, num_thresholds: int = 127, weights: Any = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """The same from counts that the program has made."""
        rows = (true_positive_counts, false_positive_counts, true_negative_counts,
                false_negative_counts, precision, recall)  # fmt: skip
        table = np.stack([numbers(r).reshape(-1) for r in rows])
        made = summaries.pr_curve(tag, table, min(num_thresholds, 127))
        self._add(made, global_step, walltime)

    def add_mesh(
        self, tag: str, vertices: Any, colors: Any = None, faces: Any = None,
        config_dict: Any = None, global_step: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Points in space (batch, count, 3) and triangles between them."""
        others = [None if x is None else numbers(x) for x in (colors, faces)]
        made = summaries.mesh(tag, numbers(vertices), others[0], others[1], config_dict)
        self._add(made, global_step, walltime)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence]]) -> None:
        """Which numbers stand in one chart: category -> title -> ["Multiline" or "Margin",
        tags]."""
        self._add(summaries.custom_scalars(layout), None, None)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """One chart of several numbers."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """One chart of a number and its bounds: three tags."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, Sequence] | None = None, run_name: str | None = None,
        global_step: Any = None,
    ) -> None:  # fmt: skip
        """The hyperparameters of a run and what came of them, as a run of its own in a folder
        below."""
        for given in (hparam_dict, metric_dict):
            if not isinstance(given, Mapping):
                raise TypeError("hparam_dict and metric_dict should be dictionary.")
        made = summaries.hparams(hparam_dict, metric_dict, hparam_domain_discrete or {})
        folder = os.path.join(self.log_dir, str(time.time()) if run_name is None else run_name)
        with SummaryWriter(folder) as run:
            for values in made:
                run._add(values, None, None)
            for name, value in metric_dict.items():
                run.add_scalar(name, value, global_step)

    # --- ending ---------------------------------------------------------------------------------
    def flush(self) -> None:
        """Everything is on disk already."""

    def close(self) -> None:
        """Close all files. Closing twice is fine; writing opens a new one."""
        for writer in (self.all_writers or {}).values():
            writer.close()
        self.all_writers = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
