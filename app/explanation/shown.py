"""An explanation as people see it: text for the terminal, and one HTML file of coloured words."""

from pathlib import Path

import numpy as np

from ..errors import InputError
from ..report.text import page_environment, visible
from ..runtime.disk import write_text
from ..text_table import text_table
from ..words import _
from .explanation import MIN_UNITS, Explanation, TokenisedText

MADE_BY = '<meta name="generator" content="explain of chinese-text-classifier">'
STRONGEST_SHADE = 0.85
MAX_LISTED = 10  # words for the label, and as many against it
MAX_WORD = 20  # characters


def explanation_shown(explanation: Explanation) -> dict:
    """Return what people see of an explanation: sentences, the pieces of its texts with their shades, and the
    strongest words for and against the label."""
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


def words_of(text: TokenisedText) -> list[list[int]]:
    """Return the indices of the units of each word, by jieba; where rjieba is not installed, of each unit."""
    try:
        import rjieba
    except ImportError:
        return [[at] for at in range(len(text.units))]
    cut = [rjieba.cut(one) for one in text.texts]
    word_at = [np.repeat(np.arange(len(words)), [len(word) for word in words]) for words in cut]
    groups: dict[tuple[int, int], list[int]] = {}
    for at, unit in enumerate(text.units):
        groups.setdefault((unit.part, int(word_at[unit.part][unit.start])), []).append(at)
    return list(groups.values())


def strongest(explanation: Explanation) -> list[list[dict]]:
    """Return the words with the largest attributions for the label, and against it, the strongest first:
    `text`, `place`, from 1, and `value`."""
    listed, text = [], explanation.text
    for word in words_of(text):
        first, last = text.units[word[0]], text.units[word[-1]]
        number = "" if len(text.texts) == 1 else f"{first.part + 1}: "
        characters = visible(text.texts[first.part][first.start : last.end], MAX_WORD)
        value = float(explanation.values[word].sum())
        listed.append({"text": characters, "place": f"{number}{first.start + 1}", "value": value})
    listed.sort(key=lambda word: -word["value"])
    return [
        [word for word in listed[:MAX_LISTED] if word["value"] > 0],
        [word for word in listed[::-1][:MAX_LISTED] if word["value"] < 0],
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
    for title, words in zip(titles, shown["strongest"], strict=True):
        cells = [[word["place"], f"{word['value']:+.4f}", word["text"]] for word in words]
        if cells:
            lines += ["", title, text_table([_("place"), _("change"), _("word")], cells)]
    return "\n".join([*lines, "", shown["figures"]])


def render_page(explanations: list[Explanation]) -> str:
    """Return the page as HTML, in which texts of strangers cannot act."""
    template = page_environment(Path(__file__).parent).get_template("explanation.html.jinja")
    shown = list(map(explanation_shown, explanations))
    title, what = shown[0]["heading"], shown[0]["what"]
    return template.render(made_by=MADE_BY, page_title=title, what=what, explanations=shown)


def write_page(path: Path, explanations: list[Explanation]) -> None:
    """Write the page; raises InputError where it cannot be written."""
    try:
        write_text(path, render_page(explanations))
    except OSError as error:
        raise InputError(f"--html {path}: the page cannot be written: {error.strerror}") from error


def check_page(path: Path) -> None:
    """Raise InputError for a file that would be replaced but is no earlier explanation, and where there is no
    folder for it."""
    if not path.parent.is_dir():
        raise InputError(f"--html {path}: there is no folder {path.parent}; make it, or choose another name")
    is_there = path.is_symlink() or path.exists()
    if is_there and (path.is_symlink() or not path.is_file() or MADE_BY.encode() not in path.read_bytes()):
        raise InputError(
            f"--html {path}: this is no earlier explanation, and is not replaced; choose another name"
        )
