"""The verbs of `python -m app` as functions of their arguments, which return the exit status; and what people
read, in a language."""

from collections.abc import Callable
from functools import partial

from app.commands import run_verb
from app.words import in_language

compare = partial(run_verb, "compare")
cross_validate = partial(run_verb, "cross-validate")
explain = partial(run_verb, "explain")
export = partial(run_verb, "export")
learning_curve = partial(run_verb, "learning-curve")
predict = partial(run_verb, "predict")
suggest = partial(run_verb, "suggest")


def spoken_in(language: str, say: Callable[..., str], *values: object) -> str:
    """Return what `say` returns for values, in a language."""
    with in_language(language):
        return say(*values)
