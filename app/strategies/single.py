"""One process on one device: CUDA, MPS or CPU."""

from app.strategies.base import Strategy


class Single(Strategy):
    """The base class is this mode."""
