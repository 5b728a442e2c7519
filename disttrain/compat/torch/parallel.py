"""``nn.DataParallel`` on a machine with one device: the module itself."""

from __future__ import annotations

from typing import Any

from ...nn import Module


class DataParallel(Module):
    """Spreads a batch over the devices of one process; there is one device, which gets it all."""

    def __init__(
        self, module: Module, device_ids: object = None, output_device: object = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module
        self.device_ids: list[int] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
