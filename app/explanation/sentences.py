"""An explanation as sentences: for the terminal, and for the page."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.language import say
from ..evaluation.page.report_page import visible
from ..evaluation.text_table import text_table
from .explanation import Explanation
from .explanation_words import NUMBER_WORDS, words
from .faithfulness import LEVEL, MIN_UNITS
from .text_units import words_of_units

# Words for the label, and as many against it
MAX_LISTED = 10
# Characters
MAX_UNIT, MAX_LABEL = 20, 40


@dataclass(frozen=True)
class KnownLabel:
    """The names of the labels that a text has in the data, and in which file and line."""

    names: list[str]
    where: str


@dataclass(frozen=True)
class ListedUnit:
    """A word for people: its characters, where they are (from 1), and its attribution."""

    text: str
    place: str
    value: float


def verdict(explanation: Explanation, language: str) -> str:
    """Return what the checks say of an explanation."""
    t, test = words(language, explanation.is_number), explanation.test
    if not explanation.attributions.has_converged:
        return t["not_converged"].format(f"{explanation.attributions.delta:+.4f}")
    if not test.is_possible:
        return t["too_short"].format(len(explanation.text.units), MIN_UNITS)
    said = t["holds" if test.holds else "fails"].format(f"{test.p_value:.3f}")
    num_units = len(explanation.text.units)
    return said if test.holds or num_units * LEVEL >= 1 else said + t["chance"].format(num_units)


def strongest(explanation: Explanation) -> tuple[list[ListedUnit], list[ListedUnit]]:
    """Return the words with the largest attributions for the label, and against it, the strongest first."""
    listed = [_listed(explanation, word) for word in words_of_units(explanation.text)]
    listed.sort(key=lambda word: -word.value)
    return [word for word in listed[:MAX_LISTED] if word.value > 0], [
        word for word in listed[::-1][:MAX_LISTED] if word.value < 0
    ]


def _listed(explanation: Explanation, word: list[int]) -> ListedUnit:
    first, last = explanation.text.units[word[0]], explanation.text.units[word[-1]]
    number = "" if len(explanation.text.texts) == 1 else f"{first.part + 1}: "
    characters = explanation.text.texts[first.part][first.start : last.end]
    value = float(explanation.values[word].sum())
    return ListedUnit(visible(characters, MAX_UNIT), f"{number}{first.start + 1}", value)


def cut_notes(explanation: Explanation, language: str) -> list[str]:
    """Return a sentence for each text that the model did not read whole, because it takes no more tokens."""
    if not explanation.text.is_cut:
        return []
    t, notes, length = words(language), [], len(explanation.text.input_ids)
    for text, ranges in zip(explanation.text.texts, explanation.text.read, strict=True):
        if ranges != [(0, len(text))]:
            shown = t["and"].join(t["range"].format(f"{start + 1:,}", f"{end:,}") for start, end in ranges)
            notes.append(t["cut" if ranges else "unread"].format(length, f"{len(text):,}", shown))
    return notes


def figures(explanation: Explanation, language: str) -> str:
    """Return how the attributions were computed, and whether they add up."""
    by = explanation.attributions
    numbers = (f"{value:+.4f}" for value in (by.text, by.neutral, by.values.sum(), by.delta))
    return words(language, explanation.is_number)["figures"].format(by.steps, *numbers, by.neutral_token)


def heading(explanation: Explanation, language: str) -> str:
    """Return the label with its probability, and whether it is a predicted one."""
    t = words(language)
    name = visible(explanation.label_names[explanation.label], MAX_LABEL)
    if explanation.is_number:
        return f"{name}: {explanation.probabilities[0]:.4g}"
    what = t["predicted"]
    if explanation.label not in explanation.predicted:
        names = [
            visible(explanation.label_names[label], MAX_LABEL) for label in explanation.predicted[:MAX_LISTED]
        ]
        what = t["chosen"].format(", ".join(names) or t["no_label"])
    return f"{name} ({what}), {t['probability']} {explanation.probabilities[explanation.label]:.4f}"


def known_label(explanation: Explanation, known: KnownLabel | None, language: str) -> list[str]:
    """Return a sentence on the label that the text has in the data of the run, where it is known."""
    if known is None:
        return []
    if explanation.is_number:
        return [say(NUMBER_WORDS, language, "known_number", known.names[0], visible(known.where))]
    names = [explanation.label_names[label] for label in explanation.predicted]
    which = "right" if sorted(names) == sorted(known.names) else "wrong"
    t = words(language)
    shown = ", ".join(visible(name, MAX_LABEL) for name in known.names) or t["no_label"]
    return [t[f"known_{which}"].format(shown, visible(known.where))]


def render_text(explanation: Explanation, language: str = "en", known: KnownLabel | None = None) -> str:
    """Return an explanation for the terminal; `known` is the label that the text has in the data."""
    t, test = words(language, explanation.is_number), explanation.test
    lines = [
        heading(explanation, language),
        *known_label(explanation, known, language),
        verdict(explanation, language),
        *cut_notes(explanation, language),
    ]
    for name, units in zip(("for_label", "against"), strongest(explanation), strict=True):
        cells = [[unit.place, f"{unit.value:+.4f}", unit.text] for unit in units]
        if cells:
            lines += ["", t[name], text_table([t["place"], t["attribution"], t["characters"]], cells)]
    if test.is_possible:
        columns = zip(test.counts, test.drops, test.random_drops.mean(axis=0), strict=True)
        cells = [[str(count), f"{drop:+.4f}", f"{chance:+.4f}"] for count, drop, chance in columns]
        lines += ["", t["test"], text_table([t["deleted"], t["ours"], t["random"]], cells)]
    return "\n".join([*lines, "", figures(explanation, language)])
