"""Time the same job in every mode: `python -m app benchmark`; --help lists the options."""

import sys

from app.commands import run_verb

if __name__ == "__main__":
    sys.exit(run_verb("benchmark", program="python benchmark_modes.py"))
