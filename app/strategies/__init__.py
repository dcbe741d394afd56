"""The ways of running in parallel, one file each; `load_strategy` imports only the one that is asked for."""

from __future__ import annotations

import importlib
import pkgutil

from app.strategies.base import Strategy

SHARED = ("base", "process_group", "deepspeed_config")  # modules of this package that are no mode


def strategy_names() -> list[str]:
    """Return the names of all strategies: the modules of this package."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in SHARED)


def load_strategy(name: str) -> type[Strategy]:
    """Return the strategy class of a mode; its module holds exactly one subclass of `Strategy` of its own."""
    module = importlib.import_module(f"app.strategies.{name}")
    classes = [
        value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__
    ]
    (found,) = [value for value in classes if issubclass(value, Strategy)]
    return found
