"""An explanation as people see it: text for the terminal, and one HTML file of coloured words."""

from pathlib import Path

import numpy as np

from ..report.text import page_environment, visible
from ..text_table import text_table
from ..words import _
from .explanation import MIN_UNITS, Explanation

STRONGEST_SHADE = 0.85
MAX_LISTED = 10  # tokens for the label, and as many against it
MAX_TOKEN = 20  # characters


def explanation_shown(explanation: Explanation) -> dict:
    """Return what people see of an explanation: sentences, the pieces of its texts with their shades, and the
    strongest tokens for and against the label."""
    environment, text = page_environment(Path(__file__).parent, autoescape=False), explanation.text
    said = environment.get_template("sentences.jinja").module
    of_texts = zip(text.texts, text.read, strict=True)
    return {
        "is_good": explanation.is_explanation,
        "what": said.what(explanation),
        "heading": said.heading(explanation),
        "verdict": said.verdict(explanation, MIN_UNITS),
        # There is a note for each text that the model did not read whole, because it takes no more tokens
        "notes": [
            said.note(given, ranges, text.tokens.shape[1])
            for given, ranges in of_texts
            if ranges != [(0, len(given))]
        ],
        "figures": said.figures(explanation),
        "texts": shaded_texts(explanation),
        "strongest": strongest(explanation),
    }


def strongest(explanation: Explanation) -> list[list[dict]]:
    """Return the tokens with the largest attributions for the label, and against it, the strongest first:
    `text`, `place`, from 1, and `value`."""
    texts, listed = explanation.text.texts, []
    for unit, value in zip(explanation.text.units, explanation.values.tolist(), strict=True):
        number = "" if len(texts) == 1 else f"{unit.part + 1}: "
        characters = visible(texts[unit.part][unit.start : unit.end], MAX_TOKEN)
        listed.append({"text": characters, "place": f"{number}{unit.start + 1}", "value": value})
    listed.sort(key=lambda token: -token["value"])
    return [
        [token for token in listed[:MAX_LISTED] if token["value"] > 0],
        [token for token in listed[::-1][:MAX_LISTED] if token["value"] < 0],
    ]


def shaded_texts(explanation: Explanation) -> list[list[dict]]:
    """Return the pieces of what was read of each text: `text`, the characters; `shade`, from -1 to 1;
    `value`, written out (None for characters without a token); `unknown`, whether the model does not know
    them."""
    largest = np.abs(explanation.values).max() or 1.0

    def piece(characters: str, value: float | None = None, unknown: bool = False) -> dict:
        shade = float((value or 0.0) / largest) * STRONGEST_SHADE
        number = None if value is None else f"{value:+.4f}"
        shown = visible(characters, len(characters))
        return {"text": shown, "shade": shade, "value": number, "unknown": unknown}

    texts = []
    for part, (text, ranges) in enumerate(zip(explanation.text.texts, explanation.text.read, strict=True)):
        starts = [start for start, _end in ranges]
        pieces, at = [], 0
        for unit, value in zip(explanation.text.units, explanation.values, strict=True):
            if unit.part != part:
                continue
            if unit.start > at:
                pieces.append(piece(" … " if unit.start in starts else text[at : unit.start]))
            pieces.append(piece(text[unit.start : unit.end], value, unit.is_unknown))
            at = unit.end
        if not ranges or ranges[-1][1] < len(text):
            pieces.append(piece(" …"))
        texts.append(pieces)
    return texts


def render_text(explanation: Explanation) -> str:
    """Return an explanation for the terminal."""
    shown = explanation_shown(explanation)
    lines = [shown["heading"], shown["verdict"], *shown["notes"]]
    titles = (_("What raises {what}").format(what=shown["what"]), _("What lowers it"))
    for title, tokens in zip(titles, shown["strongest"], strict=True):
        cells = [[token["place"], f"{token['value']:+.4f}", token["text"]] for token in tokens]
        if cells:
            lines += ["", title, text_table([_("place"), _("change"), _("token")], cells)]
    return "\n".join([*lines, "", shown["figures"]])


def render_page(explanations: list[Explanation]) -> str:
    """Return the page as HTML, in which texts of strangers cannot act."""
    template = page_environment(Path(__file__).parent).get_template("explanation.html.jinja")
    shown = list(map(explanation_shown, explanations))
    title, what = shown[0]["heading"], shown[0]["what"]
    return template.render(page_title=title, what=what, explanations=shown)
