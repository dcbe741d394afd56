"""Classify texts with a trained model: `python -m app predict`; --help lists the options."""

import sys

from app.commands import run_verb

if __name__ == "__main__":
    sys.exit(run_verb("predict", program="python predict.py"))
