"""``dt.fft``: discrete Fourier transforms, under the names of ``torch.fft``."""

import sys

from .ops.functions.outs import fills, makes
from .ops.functions.spectral import transforms
from .ops.names import settle

fft, fft2, fftn = fills(transforms.fft), fills(transforms.fft2), fills(transforms.fftn)
ifft, ifft2, ifftn = fills(transforms.ifft), fills(transforms.ifft2), fills(transforms.ifftn)
rfft, rfft2, rfftn = fills(transforms.rfft), fills(transforms.rfft2), fills(transforms.rfftn)
irfft, irfft2, irfftn = fills(transforms.irfft), fills(transforms.irfft2), fills(transforms.irfftn)
hfft, hfft2, hfftn = fills(transforms.hfft), fills(transforms.hfft2), fills(transforms.hfftn)
ihfft, ihfft2, ihfftn = fills(transforms.ihfft), fills(transforms.ihfft2), fills(transforms.ihfftn)
fftfreq, rfftfreq = makes(transforms.fftfreq), makes(transforms.rfftfreq)
fftshift, ifftshift = transforms.fftshift, transforms.ifftshift
settle(sys.modules[__name__])

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]
