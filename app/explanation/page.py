"""What people see of an explanation: text for the terminal, and one HTML file of coloured words."""

from pathlib import Path

import numpy as np

from ..report.template_environment import template_environment
from ..report.untrusted_text import visible
from ..text_table import text_table
from ..words import _
from . import sentences
from .explanation import Explanation

STRONGEST_SHADE = 0.85
MAX_LISTED = 10  # tokens for the label, and as many against it
MAX_TOKEN = 20  # characters


def explanation_parts(explanation: Explanation) -> dict:
    """Return what people see of an explanation, ready for JSON: sentences; `texts`, of each text its
    `coloured_pieces`; and the `strongest` tokens for the label, and against it, the strongest first, with
    their `place`, from 1."""
    text = explanation.text
    notes = []
    texts = []
    for part, (characters, ranges) in enumerate(zip(text.texts, text.read, strict=True)):
        if ranges != [(0, len(characters))]:
            # Some characters were not read, because the model takes no more tokens
            notes.append(sentences.note_of_unread(characters, ranges, text.tokens.shape[1]))
        texts.append(coloured_pieces(explanation, part))
    tokens = listed_tokens(explanation)
    tokens.sort(key=lambda token: -token["value"])
    raising = [token for token in tokens[:MAX_LISTED] if token["value"] > 0]
    lowering = [token for token in tokens[::-1][:MAX_LISTED] if token["value"] < 0]
    return {
        "is_good": explanation.is_explanation,
        "what": sentences.explained_quantity(explanation),
        "heading": sentences.heading(explanation),
        "verdict": sentences.verdict(explanation),
        "notes": notes,
        "figures": sentences.figures(explanation),
        "texts": texts,
        "strongest": [raising, lowering],
    }


def coloured_pieces(explanation: Explanation, part: int) -> list[dict]:
    """Return the pieces that were read of text `part`: `text`, the characters, `shade`, from -1 to 1,
    `value`, written out (None for characters without a token), and `unknown`, whether the model does not know
    them."""
    characters = explanation.text.texts[part]
    ranges = explanation.text.read[part]
    range_starts = [start for start, _end in ranges]
    largest = np.abs(explanation.values).max() or 1.0
    pieces = []
    end_before = 0
    for unit, value in zip(explanation.text.units, explanation.values.tolist(), strict=True):
        if unit.part != part:
            continue
        if unit.start in range_starts and unit.start > end_before:
            pieces.append(plain_piece(" … "))
        elif unit.start > end_before:
            pieces.append(plain_piece(characters[end_before : unit.start]))
        piece = plain_piece(characters[unit.start : unit.end])
        piece["shade"] = float(value / largest) * STRONGEST_SHADE
        piece["value"] = f"{value:+.4f}"
        piece["unknown"] = unit.is_unknown
        pieces.append(piece)
        end_before = unit.end
    if not ranges or ranges[-1][1] < len(characters):
        pieces.append(plain_piece(" …"))
    return pieces


def plain_piece(characters: str) -> dict:
    """Return a piece of characters without a token."""
    return {"text": visible(characters, len(characters)), "shade": 0.0, "value": None, "unknown": False}


def listed_tokens(explanation: Explanation) -> list[dict]:
    """Return each unit with its value and its place in the text, from 1; of pairs with the text's number."""
    text = explanation.text
    tokens = []
    for unit, value in zip(text.units, explanation.values.tolist(), strict=True):
        characters = text.texts[unit.part][unit.start : unit.end]
        place = f"{unit.start + 1}"
        if len(text.texts) > 1:
            place = f"{unit.part + 1}: {place}"
        tokens.append({"text": visible(characters, MAX_TOKEN), "place": place, "value": value})
    return tokens


def render_text(explanation: Explanation) -> str:
    """Return an explanation for the terminal."""
    parts = explanation_parts(explanation)
    lines = [parts["heading"], parts["verdict"], *parts["notes"]]
    raising, lowering = parts["strongest"]
    if raising:
        lines += ["", _("What raises {what}").format(what=parts["what"]), token_table(raising)]
    if lowering:
        lines += ["", _("What lowers it"), token_table(lowering)]
    return "\n".join([*lines, "", parts["figures"]])


def token_table(tokens: list[dict]) -> str:
    header = [_("place"), _("change"), _("token")]
    return text_table(header, [[token["place"], f"{token['value']:+.4f}", token["text"]] for token in tokens])


def render_page(explanations: list[Explanation]) -> str:
    """Return the page as HTML, in which texts of strangers cannot act."""
    template = template_environment(Path(__file__).parent).get_template("explanation.html.jinja")
    parts = [explanation_parts(explanation) for explanation in explanations]
    return template.render(page_title=parts[0]["heading"], what=parts[0]["what"], explanations=parts)
