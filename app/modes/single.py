"""One process on one device: an accelerator or the CPU."""

from .mode import Mode


class Single(Mode):
    """The defaults of `Mode`; nothing is exchanged."""

    records_passes = True
