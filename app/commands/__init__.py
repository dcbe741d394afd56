"""The verbs of `python -m app`; only the module of the verb that is asked for is imported."""

import sys
from importlib import import_module
from pathlib import Path

from ..errors import nearest, show
from ..program import MODULE, PROGRAM
from ..runtime.processes import exit_status, refuse

# A verb, its module and function of (argv, program), and its line in the list. To add one, add a line here.
VERBS = {
    "train": (".train:run", "train a classifier, in one process or in any of the modes"),
    "predict": (".predict:run", "classify texts with a trained model"),
    "explain": (".one_model:explain", "say which characters made the model choose its label"),
    "compare": (".several_runs:compare", "say whether one run is better than another, and how sure that is"),
    "cross-validate": (
        ".several_runs:cross_validate",
        "train folds or seeds: mean and spread, and labels that may be wrong",
    ),
    "learning-curve": (".several_runs:learning_curve", "say whether more training rows would help"),
    "tune": (".several_runs:tune", "search for good settings, and say by how much the search was optimistic"),
    "label": (".label:label", "label texts on a page, with a model that learns from each answer"),
    "suggest": (".one_model:suggest", "choose which rows of a pool to have labelled next"),
    "export": (".one_model:export", "write a trained model for ONNX Runtime, compared with the original"),
    "serve": (".one_model:serve", "answer requests over HTTP, with a page for people"),
    "verify": (".several_runs:verify", "verify that all modes train the same model"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the verb that comes first in `argv` (default: the command line); return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    program = Path(sys.argv[0]).stem
    if program in ("__main__", MODULE):
        program = PROGRAM
    if not words or words[0] in ("-h", "--help"):
        return show(list_of_verbs(program))
    verb, *arguments = words
    if verb not in VERBS:
        near = nearest(verb, VERBS) or f" (known: {', '.join(VERBS)})"
        return refuse(f"there is no verb '{verb}'{near}", 2)
    return run_verb(verb, arguments, f"{program} {verb}")


def list_of_verbs(program: str) -> str:
    """Return the help of a program that has all verbs."""
    width = max(map(len, VERBS))
    lines = [f"usage: {program} VERB [options]", "", "verbs:"]
    for verb, (_module, line) in VERBS.items():
        lines.append(f"  {verb:{width}}  {line}")
    lines += ["", f"{program} VERB --help lists a verb's options.", ""]
    return "\n".join(lines)


def run_verb(verb: str, argv: list[str] | None = None, program: str | None = None) -> int:
    """Run a verb with `argv` (None: the command line), named `program` in its help; return the status."""
    arguments = sys.argv[1:] if argv is None else argv

    def work() -> int | None:
        module, _colon, function = VERBS[verb][0].partition(":")
        run = getattr(import_module(module, __package__), function)
        return run(arguments, program or f"{PROGRAM} {verb}")

    return exit_status(work)
