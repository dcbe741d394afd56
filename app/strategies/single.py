"""One process on one device: CUDA, MPS or CPU."""

from .strategy import Strategy


class Single(Strategy):
    """The defaults of `Strategy`; nothing is exchanged."""

    can_cast_jointly = True
