"""What is said of an explanation, in sentences of the current language."""

from ..report.untrusted_text import visible_label
from ..words import _, joined, pgettext
from .deletion_test import MIN_UNITS
from .explanation import Explanation

MAX_PREDICTED = 10  # labels in a heading


def explained_quantity(explanation: Explanation) -> str:
    """Return the name of what the units raise or lower."""
    if explanation.is_number:
        return _("the number")
    return _("the log-odds of the label")


def heading(explanation: Explanation) -> str:
    label = visible_label(explanation.label_names[explanation.label])
    if explanation.is_number:
        return f"{label}: {explanation.probabilities[0]:.4g}"
    if explanation.label in explanation.predicted:
        role = pgettext("label", "predicted")
    else:
        role = _("explained label; the model predicts {labels}").format(labels=predicted_names(explanation))
    probability = explanation.probabilities[explanation.label]
    heading = _("{label} ({role}), probability {probability:.4f}")
    return heading.format(label=label, role=role, probability=probability)


def predicted_names(explanation: Explanation) -> str:
    """Return the names of the labels that the model predicts."""
    names = []
    for label in explanation.predicted[:MAX_PREDICTED]:
        names.append(visible_label(explanation.label_names[label]))
    return joined(names) or _("no label")


def verdict(explanation: Explanation) -> str:
    """Return whether it is an explanation, by the deletion test."""
    if explanation.p_value is None:
        sentence = _(
            "Not tested: the deletion test needs {least} units of text, and this text has {units}. What is "
            "marked may be wrong; try a longer text."
        )
        return sentence.format(least=MIN_UNITS, units=len(explanation.text.units))
    if explanation.is_explanation:
        sentence = _(
            "The model did use what is marked: deleting the characters that raise {what} most lowers it more "
            "than deleting at random (p = {p:.3f}). This says nothing about whether the answer is right."
        )
    else:
        sentence = _(
            "THIS IS NO EXPLANATION: deleting the characters that raise {what} most lowers it no more than "
            "deleting at random (p = {p:.3f})."
        )
    return sentence.format(what=explained_quantity(explanation), p=explanation.p_value)


def note_of_unread(text: str, ranges: list[tuple[int, int]], num_tokens: int) -> str:
    """Return that a model of at most `num_tokens` reads only `ranges` of the characters of a text."""
    positions = joined(f"{start + 1:,}-{end:,}" for start, end in ranges)
    sentence = _(
        "The model reads at most {tokens} tokens: of {characters:,} characters {ranges} are explained, the "
        "others it never saw."
    )
    return sentence.format(tokens=num_tokens, characters=len(text), ranges=positions or "0")


def figures(explanation: Explanation) -> str:
    """Return the sums, which show how exact the integral is."""
    sentence = _(
        "Integrated gradients of {what}: {text:+.4f} for the text, {neutral:+.4f} for one of masks; the "
        "attributions add up to {sum:+.4f}."
    )
    return sentence.format(
        what=explained_quantity(explanation),
        text=explanation.log_odds,
        neutral=explanation.neutral,
        sum=explanation.values.sum(),
    )
