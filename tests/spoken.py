"""What people read, in a language, for the tests."""

from collections.abc import Callable

from app.words import in_language


def spoken_in(language: str, say: Callable[..., str], *values: object) -> str:
    """Return what `say` returns for values, in a language."""
    with in_language(language):
        return say(*values)
