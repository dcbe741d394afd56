"""The verbs of `python -m app` as functions of their arguments, which return the exit status."""

from functools import partial

from app.commands import run_verb

compare = partial(run_verb, "compare")
cross_validate = partial(run_verb, "cross-validate")
explain = partial(run_verb, "explain")
export = partial(run_verb, "export")
learning_curve = partial(run_verb, "learning-curve")
predict = partial(run_verb, "predict")
serve = partial(run_verb, "serve")
suggest = partial(run_verb, "suggest")
tune = partial(run_verb, "tune")
