"""What becomes of which layer: tables that are copied, and complete."""

from __future__ import annotations

from disttrain import nn, quantize
from disttrain.quantize import mappings


def test_tables_are_the_callers_own():
    for get in (
        quantize.get_default_static_quant_module_mappings,
        quantize.get_default_dynamic_quant_module_mappings,
        quantize.get_default_qat_module_mappings,
    ):
        get().clear()
        assert nn.Linear in get()
    assert nn.Conv2d in quantize.get_default_qconfig_propagation_list()
    assert nn.Conv2d in mappings.get_default_compare_output_module_list()


def test_all_that_is_trained_can_be_converted():
    assert set(mappings.QAT.values()) <= set(mappings.STATIC)
    for table in (mappings.STATIC, mappings.QAT, mappings.DYNAMIC):
        assert all(hasattr(made, "from_float") for made in table.values())
