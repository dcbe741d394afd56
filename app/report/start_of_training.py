"""What the training has added to the model that it started from, on dev."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..tasks.task import Task
from ..words import _, joined
from .metrics import BY_KEY


def before_and_after(
    task: Task, evaluations: Sequence[Mapping], best_step: int, is_linear_head: bool
) -> dict[str, Any]:
    """Return the figures on dev `before` the first step and `after` the best one, and whether a linear head
    on the encoder as it was (`is_linear_head`) had the first; empty where the model as it was is the best, or
    was not evaluated, because it knew no labels. `evaluations` are those of dev, without n-grams."""
    by_step = {evaluation["step"]: evaluation for evaluation in evaluations if evaluation["split"] == "dev"}
    if best_step == 0 or 0 not in by_step or best_step not in by_step:
        return {}
    figures: dict[str, Any] = {"is_linear_head": is_linear_head}
    for name, step in (("before", 0), ("after", best_step)):
        evaluation = by_step[step]
        figures[name] = {key: evaluation[key] for key in task.baseline_metrics if key in evaluation}
    return figures


def sentence_on_start(metrics: Mapping) -> str:
    """Return in the current language what `before_and_after` has found; empty where it has found nothing."""
    figures = metrics.get("start_on_dev")
    if not figures:
        return ""
    sentence = _("On dev the model that the training started from has {before}; this checkpoint has {after}")
    if figures["is_linear_head"]:
        sentence = _(
            "On dev the linear head that the training started from has {before}; this checkpoint has {after}"
        )
    return sentence.format(before=in_words(figures["before"]), after=in_words(figures["after"]))


def in_words(values: Mapping[str, float]) -> str:
    return joined(f"{BY_KEY[key].name} {value:.4f}" for key, value in values.items())
