"""An explanation -> one HTML file, complete in itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import InputError
from ..report.page import Axes, around, page_environment, visible
from ..runtime.disk import write_text
from .explanation import Explanation
from .sentences import (
    KnownLabel,
    cut_notes,
    figures,
    heading,
    known_label,
    strongest,
    strongest_titles,
    verdict,
)

MADE_BY = '<meta name="generator" content="explain of chinese-text-classifier">'
STRONGEST_SHADE = 0.85


def write_page(path: Path, explanations: list[Explanation], known: KnownLabel | None = None) -> None:
    """Write the page; raises InputError where it cannot be written."""
    try:
        write_text(path, render_page(explanations, known))
    except OSError as error:
        raise InputError(f"--html {path}: the page cannot be written: {error.strerror}") from error


def check_page(path: Path) -> None:
    """Raise InputError for a file that is no earlier explanation, which would be replaced."""
    if not path.parent.is_dir():
        raise InputError(f"--html {path}: there is no folder {path.parent}; make it, or choose another name")
    if path.is_symlink() or path.exists():
        is_ours = path.is_file() and not path.is_symlink() and MADE_BY.encode() in path.read_bytes()[:2000]
        if not is_ours:
            raise InputError(
                f"--html {path}: this is no earlier explanation, and is not replaced; choose another name"
            )


def render_page(explanations: list[Explanation], known: KnownLabel | None = None) -> str:
    """Return the page as HTML, in which texts of strangers cannot act."""
    context = {"made_by": MADE_BY, "is_number": explanations[0].is_number}
    context["page_title"] = heading(explanations[0])
    context["titles"] = strongest_titles(explanations[0])
    context["explanations"] = [
        explanation_shown(explanation, known) | {"chart": _chart(explanation)} for explanation in explanations
    ]
    return page_environment(Path(__file__).parent).get_template("explanation.html.jinja").render(context)


def explanation_shown(explanation: Explanation, known: KnownLabel | None = None) -> dict:
    """Return what people see of an explanation, but the chart: sentences, the pieces of its texts with their
    shades, and the strongest words for and against the label."""
    shown = {
        "is_good": explanation.is_explanation,
        "heading": heading(explanation),
        "verdict": verdict(explanation),
    }
    shown |= {"notes": known_label(explanation, known) + cut_notes(explanation)}
    shown |= {"figures": figures(explanation)}
    return shown | {"texts": _shaded_texts(explanation), "strongest": strongest(explanation)}


def _shaded_texts(explanation: Explanation) -> list[list[dict]]:
    """Return the pieces of what was read of each text: characters, their shade from -1 to 1, the value,
    whether unknown."""
    largest = np.abs(explanation.values).max() or 1.0
    texts = []
    for part, (text, ranges) in enumerate(zip(explanation.text.texts, explanation.text.read, strict=True)):
        pieces, at = [], ranges[0][0] if ranges else 0
        # Of the tail
        after_gap = [start for start, _ in ranges[1:]]
        for unit, value in zip(explanation.text.units, explanation.values, strict=True):
            if unit.part != part:
                continue
            if unit.start > at:
                between = " … " if unit.start in after_gap else _shown(text[at : unit.start])
                pieces.append({"text": between, "shade": 0, "value": None, "unknown": False})
            shade = float(value / largest) * STRONGEST_SHADE
            shown = {"shade": shade, "value": f"{value:+.4f}", "unknown": unit.is_unknown}
            pieces.append({"text": _shown(text[unit.start : unit.end])} | shown)
            at = unit.end
        read_to = ranges[-1][1] if ranges else 0
        texts.append((pieces, bool(ranges) and ranges[0][0] > 0, read_to < len(text)))
    return texts


def _shown(text: str) -> str:
    return visible(text, len(text))


def _chart(explanation: Explanation) -> dict | None:
    """Return the places of the lines of the deletion test, from no deleted unit on; None without it."""
    test = explanation.test
    if not test.is_possible:
        return None
    counts = np.append(0, test.counts)
    low, high = (np.append(0, np.quantile(test.random_drops, share, axis=0)) for share in (0.05, 0.95))
    ours, mean = np.append(0, test.drops), np.append(0, test.random_drops.mean(axis=0))
    axes = Axes(0, int(counts[-1]), *around([*ours, *low, *high]))
    band = f"{axes.line(counts, high)} {axes.line(counts[::-1], low[::-1])}"
    lines = {"ours": axes.line(counts, ours), "random": axes.line(counts, mean), "band": band}
    return lines | {"axes": axes, "draws": len(test.random_drops)}
