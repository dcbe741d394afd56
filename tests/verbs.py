"""The verbs of `python -m app` as functions of their arguments, which return the exit status."""

from functools import partial

from app.commands import run_verb

compare = partial(run_verb, "compare")
explain = partial(run_verb, "explain")
export = partial(run_verb, "export")
predict = partial(run_verb, "predict")
suggest = partial(run_verb, "suggest")
