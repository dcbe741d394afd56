"""The model card in a run folder: README.md, or beside a file of the user with that name, MODEL_CARD.md."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from ..runtime.disk import write_text

logger = logging.getLogger(__name__)
# The first that is free, or that a run wrote
CARDS = ("README.md", "MODEL_CARD.md")
# With those of runs that were trained for longer
CARD_FILES = (*CARDS, *(name.replace(".", ".step-*.") for name in CARDS))
HEADER = "---\n# A run wrote this card and replaces it unless it was changed; SHA-256 of what follows: "


def write_card(folder: Path, text: str) -> Path | None:
    """Write the card, which begins with its metadata, and return its path.

    A file that no run wrote, or that was changed, stays; without a free name nothing is written.
    """
    path = next((folder / name for name in CARDS if is_free(folder / name)), None)
    if path is None:
        logger.warning(
            "The model card is not written: %s are files of yours in %s.", " and ".join(CARDS), folder
        )
    else:
        write_text(path, f"{HEADER}{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    return path


def is_free(path: Path) -> bool:
    """Return whether a run may write a card there: there is nothing, or the unchanged card of a run."""
    return not (path.is_symlink() or path.exists()) or is_card_of_run(path)


def is_card_of_run(path: Path) -> bool:
    """Return whether a run wrote this file, and it is unchanged since then."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return False
    digest, _, rest = text.removeprefix(HEADER).partition("\n")
    return text.startswith(HEADER) and digest == hashlib.sha256(rest.encode()).hexdigest()


def cards_of_run(folder: Path) -> list[Path]:
    """Return the current cards in a folder that a run wrote."""
    return [folder / name for name in CARDS if is_card_of_run(folder / name)]
