"""Element types of GGUF files, bit by bit as the package ``gguf`` has them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from disttrain.errors import ConfigError
from disttrain.serialize.gguf.blocks import BY_CODE, KINDS, WRITTEN, kind_of


def numbers():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 64)).astype(np.float32)
    x[3], x[5], x[6], x[7] = 0, 0.5, x[6] * 1e-9, x[7] * 1e6
    x[4] = rng.integers(-127, 128, 64)
    x[8, :3] = -127, 63.5, -0.5  # halves
    return x


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "BF16", "F16", "F32"])
def test_bytes_are_those_of_the_package(name):
    x, code = numbers(), gguf.GGMLQuantizationType[name]
    if name == "F16":
        x = x.clip(-60000, 60000)
    raw = np.ascontiguousarray(gguf.quants.quantize(x, code)).view(np.uint8)
    kind = KINDS[name]
    assert kind.code == code.value and kind.num_bytes(x.shape) == raw.size
    theirs = gguf.quants.dequantize(raw, code).astype(np.float32)
    assert kind.array(raw.reshape(-1), x.shape).astype(np.float32).tobytes() == theirs.tobytes()
    if kind.pack is not None:
        assert kind.bytes(x).tobytes() == raw.tobytes()


def test_sizes_are_those_of_the_package():
    for kind in BY_CODE.values():
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind.code)]
        assert (kind.block, kind.size) == (block, size), kind.name


def test_8_bits_are_kept_when_written_again():
    once = KINDS["Q8_0"].bytes(numbers()[8:])
    again = KINDS["Q8_0"].bytes(KINDS["Q8_0"].array(once, (32, 64)))
    assert once.tobytes() == again.tobytes()


def test_what_cannot_be_written():
    assert WRITTEN[:3] == ["F32", "F16", "Q8_0"]
    with pytest.raises(ConfigError, match="Q4_0 can be read here, not written"):
        KINDS["Q4_0"].bytes(numbers())
    with pytest.raises(ConfigError, match="type='Q9' given"):
        kind_of("Q9")
    assert kind_of("q8_0") is KINDS["Q8_0"]
    assert not KINDS["Q8_0"].fits((2, 31)) and not KINDS["Q8_0"].fits(())
