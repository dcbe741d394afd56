"""What predictions say beside labels, where it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .open_model import OpenedModel

if TYPE_CHECKING:
    from .nearest_rows import NearestRows

# Training rows beside a row
MAX_EVIDENCE = 100


def add_beside(opened: OpenedModel, evidence: int | None, reject: float | None) -> None:
    """Let predictions have `evidence` training rows, and say whether they are rejected, with the share
    `reject` of false alarms (None: not); raises InputError where the model or its data cannot."""
    options = {"--evidence": evidence, "--reject": reject}
    asked = [option for option, value in options.items() if value is not None]
    if not asked:
        return
    from .nearest_rows import NearestRows
    from .rejection import Rejection
    from .run_vectors import RunVectors

    vectors, beside = RunVectors(opened, asked[0]), opened.predictor.beside
    if reject is not None:
        beside.append(Rejection(vectors, reject))
    if evidence is not None:
        beside.append(NearestRows(vectors, opened.predictor.outcome, evidence))


def nearest_rows(opened: OpenedModel, count: int = 1) -> NearestRows:
    """Return what finds the nearest training rows; raises InputError where the model or its data cannot."""
    from .nearest_rows import NearestRows
    from .run_vectors import RunVectors

    return NearestRows(RunVectors(opened, "--evidence"), opened.predictor.outcome, count)
