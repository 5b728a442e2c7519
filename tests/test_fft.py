"""``dt.fft`` has the names of ``torch.fft``, with ``out``."""

from __future__ import annotations

import inspect

import pytest

import disttrain as dt


@pytest.mark.parametrize("name", dt.fft.__all__)
def test_a_name_is_a_function_that_is_found_by_it(name):
    function = getattr(dt.fft, name)
    assert inspect.getdoc(function)
    assert (function.__module__, function.__qualname__) == ("disttrain.fft", name) or (
        name.endswith("shift")
    )


def test_results_go_where_they_are_told():
    x, out = dt.arange(4.0), dt.empty(0, dtype=dt.complex64)
    assert dt.fft.fft(x, out=out) is out
    assert out.tolist() == dt.fft.fft(x).tolist()
    freq = dt.empty(4, dtype=dt.float64)
    assert dt.fft.fftfreq(4, out=freq).tolist() == [0, 0.25, -0.5, -0.25]
    with pytest.raises(TypeError, match="give a real one"):
        dt.fft.irfft(x, out=out)
