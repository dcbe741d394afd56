"""The verbs of `python -m app`, one file each; only the module of the verb that is asked for is imported."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from app.errors import nearest

# A verb, its module, which has `main(argv, program)`, and one line for the list of verbs. Adding a verb is one line here.
VERBS = {
    "predict": ("app.commands.predict", "classify texts with a trained model"),
    "verify": ("app.commands.verify", "verify that all modes train the same model"),
    "benchmark": ("app.commands.benchmark", "time the same job in every mode"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the verb that comes first in `argv` (default: the command line); return the exit status, 2 for an unknown verb."""
    words = sys.argv[1:] if argv is None else argv
    program = _program()
    if not words or words[0] in ("-h", "--help"):
        print(overview(program))
        return 0
    verb, *arguments = words
    if verb not in VERBS:
        near = nearest(verb, VERBS) or f" (known: {', '.join(VERBS)})"
        print(f"error: there is no verb '{verb}'{near}", file=sys.stderr)
        return 2
    return run_verb(verb, arguments, f"{program} {verb}")


def run_verb(verb: str, argv: list[str] | None = None, program: str | None = None) -> int:
    """Run one verb with `argv` (default: the command line); return the exit status. `program` is what its help calls it."""
    module = import_module(VERBS[verb][0])
    return module.main(sys.argv[1:] if argv is None else argv, program or f"python -m app {verb}")


def overview(program: str) -> str:
    """Return the list of the verbs, a line each."""
    width = max(map(len, VERBS))
    lines = [f"  {verb:{width}}  {line}" for verb, (_, line) in VERBS.items()]
    return "\n".join(
        [f"usage: {program} VERB [options]", "", "verbs:", *lines, "", f"{program} VERB --help lists a verb's options."]
    )


def _program() -> str:
    name = Path(sys.argv[0]).stem
    return "python -m app" if name == "__main__" else name
