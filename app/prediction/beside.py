"""What predictions say beside labels, where it is asked for."""

from __future__ import annotations

from .open_model import OpenedModel


def add_beside(opened: OpenedModel, evidence: int | None) -> None:
    """Let predictions have `evidence` training rows (None: none); raises InputError where it is not known
    what the model was trained with."""
    if evidence is not None:
        from .nearest_rows import NearestRows

        opened.predictor.beside.append(NearestRows(opened, evidence))
