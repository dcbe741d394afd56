"""Verify that all modes train the same model: `python -m app verify`; --help lists the options."""

import sys

from app.commands import run_verb

if __name__ == "__main__":
    sys.exit(run_verb("verify", program="python verify_modes.py"))
