"""The verbs of `python -m app`, one file each; only the module of the verb that is asked for is imported."""

import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from ..config.shipped import PROGRAM
from ..errors import InputError, missing_package, nearest
from .exit_status import exit_status

# A verb, its module, which has `run(argv, program)`, and one line for the list of verbs. Adding a verb is one
# line here.
VERBS = {
    "predict": (".predict", "classify texts with a trained model"),
    "explain": (".explain", "say which characters made the model choose its label"),
    "compare": (".compare", "say whether one run is better than another, and how sure that is"),
    "cross-validate": (
        ".cross_validate",
        "train folds or seeds: mean and spread, and labels that may be wrong",
    ),
    "learning-curve": (".learning_curve", "say whether more training rows would help"),
    "tune": (".tune", "search for good settings, and say by how much the search was optimistic"),
    "suggest": (".suggest", "choose which rows of a pool to have labelled next"),
    "export": (".export", "write a trained model for ONNX Runtime, compared with the original"),
    "serve": (".serve", "answer requests over HTTP, with a page for people"),
    "verify": (".verify", "verify that all modes train the same model"),
    "prepare": (".prepare", "read and tokenise the data of a run once, before it starts"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the verb that comes first in `argv` (default: the command line); return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    program = Path(sys.argv[0]).stem
    program = PROGRAM if program == "__main__" else program
    if not words or words[0] in ("-h", "--help"):
        width = max(map(len, VERBS))
        lines = [f"  {verb:{width}}  {line}" for verb, (_, line) in VERBS.items()]
        end = f"{program} VERB --help lists a verb's options."
        return print_help("\n".join([f"usage: {program} VERB [options]", "", "verbs:", *lines, "", end, ""]))
    verb, *arguments = words
    if verb not in VERBS:
        near = nearest(verb, VERBS) or f" (known: {', '.join(VERBS)})"
        print(f"error: there is no verb '{verb}'{near}", file=sys.stderr)
        return 2
    return run_verb(verb, arguments, f"{program} {verb}")


def run_verb(verb: str, argv: list[str] | None = None, program: str | None = None) -> int:
    """Run one verb with `argv` (default: the command line); return the exit status, 130 after Ctrl-C.
    `program` is what its help calls the verb."""
    try:
        module = import_module(VERBS[verb][0], __package__)
        words = sys.argv[1:] if argv is None else argv
        work = partial(module.run, words, program or f"{PROGRAM} {verb}")
        return exit_status(work)
    except SystemExit:
        # Argparse has printed the help
        if status := print_help(""):
            return status
        raise
    except ModuleNotFoundError as error:
        print(missing_package(error), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        # During imports; later the verb itself says what it leaves behind
        print("interrupted", file=sys.stderr)
        return 130


def print_help(text: str) -> int:
    """Print `text` and what argparse has printed; return the exit status, 1 where it cannot be written."""
    from ..config.help import show

    try:
        return show(text)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
