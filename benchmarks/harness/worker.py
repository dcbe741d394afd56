"""The process of one program: python -m benchmarks.harness.worker MODULE FILE

MODULE has a function `main(job, meter)`; FILE is JSON whose "job" is the job's type, "module:Class", and
whose other keys are its fields. Commands come as lines of JSON on standard input, answers go as lines of JSON
to standard output.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.harness.meter import Finished, Meter


def main() -> None:
    """Serve commands until standard input ends, as it also does when the parent is gone."""
    module, job_file = sys.argv[1:]
    # Libraries print to standard output as well; what they say goes to the log, and only answers go where it
    # led.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    fields = json.loads(Path(job_file).read_text(encoding="utf-8"))
    job_module, job_class = fields.pop("job").split(":")
    job = getattr(import_module(job_module), job_class)(**fields)

    def receive() -> dict | None:
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def send(answer: dict) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        import_module(module).main(job, Meter(receive, send, job.device))
    except Finished:
        return


if __name__ == "__main__":
    main()
