"""DDP without torch's wrapper, for the contract suite."""

from app.strategies.ddp import DDP


class Unwrapped(DDP):
    """As `ddp.wrapper` false."""

    wraps = False
