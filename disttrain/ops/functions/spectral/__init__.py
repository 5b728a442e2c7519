"""Functions of frequencies: Fourier transforms, windows, transforms of short times.

transforms    the names of ``torch.fft``
windows       Bartlett, Blackman, Hamming, Hann, Kaiser
short_time    stft and istft
"""
