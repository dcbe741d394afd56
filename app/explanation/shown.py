"""An explanation as people see it: text for the terminal, and one HTML file of coloured words."""

from pathlib import Path

import numpy as np

from ..errors import InputError
from ..report.text import page_environment, visible
from ..runtime.disk import write_text
from ..text_table import text_table
from ..words import _, pgettext
from .explanation import MIN_UNITS, Explanation, TokenisedText

MADE_BY = '<meta name="generator" content="explain of chinese-text-classifier">'
STRONGEST_SHADE = 0.85
MAX_LISTED = 10  # words for the label, and as many against it
MAX_WORD, MAX_LABEL = 20, 40  # characters


def explanation_shown(explanation: Explanation) -> dict:
    """Return what people see of an explanation: sentences, the pieces of its texts with their shades, and the
    strongest words for and against the label."""
    return {
        "is_good": explanation.is_explanation,
        "heading": heading(explanation),
        "verdict": verdict(explanation),
        "notes": notes(explanation.text),
        "figures": _(
            "Integrated gradients of {what}: {text:+.4f} for the text, {neutral:+.4f} for one of masks; the "
            "attributions add up to {sum:+.4f}, convergence delta {delta:+.4f}."
        ).format(
            what=what_changes(explanation),
            text=explanation.log_odds,
            neutral=explanation.neutral,
            sum=explanation.values.sum(),
            delta=explanation.delta,
        ),
        "texts": shaded_texts(explanation),
        "strongest": strongest(explanation),
    }


def heading(explanation: Explanation) -> str:
    """Return the label with its probability, and whether it is a predicted one."""
    names = [visible(name, MAX_LABEL) for name in explanation.label_names]
    label, predicted = explanation.label, explanation.predicted
    if explanation.is_number:
        return f"{names[label]}: {explanation.probabilities[0]:.4g}"
    what = pgettext("label", "predicted")
    if label not in predicted:
        labels = ", ".join(names[one] for one in predicted[:MAX_LISTED]) or _("no label")
        what = _("explained label; the model predicts {labels}").format(labels=labels)
    probability = _("probability")
    return f"{names[label]} ({what}), {probability} {explanation.probabilities[label]:.4f}"


def what_changes(explanation: Explanation) -> str:
    """Return what attributions are in."""
    return _("the number") if explanation.is_number else _("the log-odds of the label")


def verdict(explanation: Explanation) -> str:
    """Return what the deletion test says of an explanation."""
    if explanation.p_value is None:
        return _(
            "Not tested: the deletion test needs {least} units of text, and this text has {units}. What is "
            "marked may be wrong; try a longer text."
        ).format(units=len(explanation.text.units), least=MIN_UNITS)
    said = _(
        "THIS IS NO EXPLANATION: deleting the characters that raise {what} most lowers it no more than "
        "deleting at random (p = {p:.3f})."
    )
    if explanation.is_explanation:
        said = _(
            "The model did use what is marked: deleting the characters that raise {what} most lowers it more "
            "than deleting at random (p = {p:.3f}). This says nothing about whether the answer is right."
        )
    return said.format(what=what_changes(explanation), p=explanation.p_value)


def notes(text: TokenisedText) -> list[str]:
    """Return a sentence for each text that the model did not read whole, because it takes no more tokens."""
    cut = _(
        "The model reads at most {tokens} tokens: of {characters:,} characters {ranges} are "
        "explained, the others it never saw."
    )
    said = []
    for given, ranges in zip(text.texts, text.read, strict=True):
        if ranges != [(0, len(given))]:
            shown = ", ".join(f"{start + 1:,}-{end:,}" for start, end in ranges) or "0"
            said.append(cut.format(tokens=text.tokens.shape[1], ranges=shown, characters=len(given)))
    return said


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
    """Return the pieces of what was read of each text: characters, their shade from -1 to 1, the value (None:
    of characters without a token), and whether the model does not know them."""
    largest = np.abs(explanation.values).max() or 1.0

    def piece(characters: str, value: float | None = None, unknown: bool = False) -> dict:
        shade = float((value or 0.0) / largest) * STRONGEST_SHADE
        number = None if value is None else f"{value:+.4f}"
        shown = visible(characters, len(characters))
        return {"text": shown, "shade": shade, "value": number, "unknown": unknown}

    texts = []
    for part, (text, ranges) in enumerate(zip(explanation.text.texts, explanation.text.read, strict=True)):
        pieces, at, starts = [], 0, [start for start, _ in ranges]
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
    shown, what = explanation_shown(explanation), what_changes(explanation)
    lines = [shown["heading"], shown["verdict"], *shown["notes"]]
    titles = (_("What raises {what}").format(what=what), _("What lowers it"))
    for title, words in zip(titles, shown["strongest"], strict=True):
        cells = [[word["place"], f"{word['value']:+.4f}", word["text"]] for word in words]
        if cells:
            lines += ["", title, text_table([_("place"), _("change"), _("word")], cells)]
    return "\n".join([*lines, "", shown["figures"]])


def render_page(explanations: list[Explanation]) -> str:
    """Return the page as HTML, in which texts of strangers cannot act."""
    template = page_environment(Path(__file__).parent).get_template("explanation.html.jinja")
    return template.render(
        made_by=MADE_BY,
        page_title=heading(explanations[0]),
        what=what_changes(explanations[0]),
        explanations=list(map(explanation_shown, explanations)),
    )


def write_page(path: Path, explanations: list[Explanation]) -> None:
    """Write the page; raises InputError where it cannot be written."""
    try:
        write_text(path, render_page(explanations))
    except OSError as error:
        raise InputError(f"--html {path}: the page cannot be written: {error.strerror}") from error


def check_page(path: Path) -> None:
    """Raise InputError for a file that is no earlier explanation, which would be replaced."""
    if not path.parent.is_dir():
        raise InputError(f"--html {path}: there is no folder {path.parent}; make it, or choose another name")
    is_there = path.is_symlink() or path.exists()
    if is_there and (path.is_symlink() or not path.is_file() or MADE_BY.encode() not in path.read_bytes()):
        raise InputError(
            f"--html {path}: this is no earlier explanation, and is not replaced; choose another name"
        )
