"""An explanation as sentences: for the terminal, and for the page."""

from __future__ import annotations

from dataclasses import dataclass

from ..report.page import visible
from ..text_table import text_table
from ..words import _, pgettext
from .explanation import Explanation
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


def verdict(explanation: Explanation) -> str:
    """Return what the checks say of an explanation."""
    test, num_units = explanation.test, len(explanation.text.units)
    if not explanation.attributions.has_converged:
        return _(
            "THIS IS NO EXPLANATION: the attributions do not add up to what they must; the difference is "
            "{delta:+.4f}."
        ).format(delta=explanation.attributions.delta)
    if not test.is_possible:
        return _(
            "Not tested: the deletion test needs {least} units of text, and this text has {units}. What is "
            "marked may be wrong; try a longer text."
        ).format(units=num_units, least=MIN_UNITS)
    if test.holds and explanation.is_number:
        said = _(
            "The model did use what is marked: deleting the characters that raise the number most lowers it "
            "more than deleting at random (p = {p:.3f}). This says nothing about whether the number is right."
        )
    elif test.holds:
        said = _(
            "The model did use what is marked: deleting the characters with most evidence for the label "
            "lowers its log-odds more than deleting at random (p = {p:.3f}). This says nothing about whether "
            "the label is right."
        )
    elif explanation.is_number:
        said = _(
            "THIS IS NO EXPLANATION: deleting the characters that the attributions favour lowers the number "
            "no more than deleting at random (p = {p:.3f})."
        )
    else:
        said = _(
            "THIS IS NO EXPLANATION: deleting the characters that the attributions favour lowers the "
            "log-odds of the label no more than deleting at random (p = {p:.3f})."
        )
    said = said.format(p=test.p_value)
    if test.holds or num_units * LEVEL >= 1:
        return said
    chance = _(" In a text of {units} units chance alone is often as good; try a longer text.")
    return said + chance.format(units=num_units)


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


def cut_notes(explanation: Explanation) -> list[str]:
    """Return a sentence for each text that the model did not read whole, because it takes no more tokens."""
    if not explanation.text.is_cut:
        return []
    notes = []
    cut = _(
        "The model reads at most {tokens} tokens: characters {ranges} of {characters:,} are explained, the "
        "others it never saw."
    )
    unread = _(
        "The model reads at most {tokens} tokens, and none of them is of this text of {characters:,} "
        "characters."
    )
    for text, ranges in zip(explanation.text.texts, explanation.text.read, strict=True):
        if ranges != [(0, len(text))]:
            shown = pgettext("ranges of characters", " and ").join(
                pgettext("ranges of characters", "{start:,} to {end:,}").format(start=start + 1, end=end)
                for start, end in ranges
            )
            values = {"tokens": len(explanation.text.input_ids), "characters": len(text)}
            notes.append(cut.format(ranges=shown, **values) if ranges else unread.format(**values))
    return notes


def figures(explanation: Explanation) -> str:
    """Return how the attributions were computed, and whether they add up."""
    by = explanation.attributions
    if explanation.is_number:
        said = _(
            "Integrated gradients, {steps} steps: {text:+.4f} is the number of the text, {neutral:+.4f} with "
            "{token} for every token; the attributions add up to {sum:+.4f}, convergence delta {delta:+.4f}."
        )
    else:
        said = _(
            "Integrated gradients, {steps} steps: log-odds {text:+.4f} of the text, {neutral:+.4f} with "
            "{token} for every token; the attributions add up to {sum:+.4f}, convergence delta {delta:+.4f}."
        )
    values = {"steps": by.steps, "text": by.text, "neutral": by.neutral, "token": by.neutral_token}
    return said.format(sum=by.values.sum(), delta=by.delta, **values)


def heading(explanation: Explanation) -> str:
    """Return the label with its probability, and whether it is a predicted one."""
    name = visible(explanation.label_names[explanation.label], MAX_LABEL)
    if explanation.is_number:
        return f"{name}: {explanation.probabilities[0]:.4g}"
    what = pgettext("label", "predicted")
    if explanation.label not in explanation.predicted:
        names = [
            visible(explanation.label_names[label], MAX_LABEL) for label in explanation.predicted[:MAX_LISTED]
        ]
        what = _("explained label; the model predicts {labels}")
        what = what.format(labels=", ".join(names) or _("no label"))
    probability = _("probability")
    return f"{name} ({what}), {probability} {explanation.probabilities[explanation.label]:.4f}"


def known_label(explanation: Explanation, known: KnownLabel | None) -> list[str]:
    """Return a sentence on the label that the text has in the data of the run, where it is known."""
    if known is None:
        return []
    if explanation.is_number:
        said = _("In the data this text has the number {number} ({where}).")
        return [said.format(number=known.names[0], where=visible(known.where))]
    names = [explanation.label_names[label] for label in explanation.predicted]
    if sorted(names) == sorted(known.names):
        said = _("In the data this text has the same label: {labels} ({where}).")
    else:
        said = _(
            "THE MODEL IS WRONG HERE: in the data this text has the label {labels} ({where}). What follows "
            "says why it errs, or that the label is wrong."
        )
    shown = ", ".join(visible(name, MAX_LABEL) for name in known.names) or _("no label")
    return [said.format(labels=shown, where=visible(known.where))]


def strongest_titles(explanation: Explanation) -> tuple[str, str, str]:
    """Return the titles of both lists of `strongest`, and what a value in them is called."""
    if explanation.is_number:
        return _("What raises the number"), _("What lowers it"), _("change of the number")
    return _("Evidence for the label"), _("Evidence against it"), _("evidence (log-odds)")


def render_text(explanation: Explanation, known: KnownLabel | None = None) -> str:
    """Return an explanation for the terminal; `known` is the label that the text has in the data."""
    lines = [
        heading(explanation),
        *known_label(explanation, known),
        verdict(explanation),
        *cut_notes(explanation),
    ]
    *titles, value_name = strongest_titles(explanation)
    for title, units in zip(titles, strongest(explanation), strict=True):
        cells = [[unit.place, f"{unit.value:+.4f}", unit.text] for unit in units]
        if cells:
            lines += ["", title, text_table([_("place"), value_name, _("word")], cells)]
    test = explanation.test
    if test.is_possible:
        columns = zip(test.counts, test.drops, test.random_drops.mean(axis=0), strict=True)
        cells = [[str(count), f"{drop:+.4f}", f"{chance:+.4f}"] for count, drop, chance in columns]
        header = [_("deleted units"), _("by attribution"), _("at random")]
        lines += ["", _("Deletion test"), text_table(header, cells)]
    return "\n".join([*lines, "", figures(explanation)])
