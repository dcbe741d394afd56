"""One process on one device: an accelerator or the CPU."""

from .strategy import Strategy


class Single(Strategy):
    """The defaults of `Strategy`; nothing is exchanged."""

    records_passes = True
