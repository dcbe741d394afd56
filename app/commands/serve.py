"""Answer requests for labels over HTTP with a trained model, and show a page for people.

python -m app serve                                               with the run that finished last, on http://127.0.0.1:8000
python -m app serve checkpoints/sample-001 --port 8080
TEXT_CLASSIFIER_API_KEY=secret python -m app serve checkpoints/sample-001 --host 0.0.0.0

POST /predict takes {"inputs": "今天真开心"}, a list of texts or a list of pairs, and answers with labels and
scores; GET / is the page, GET /health, /info and /metrics are for machines. SIGTERM finishes the requests
that have arrived. docs/serving.md has the details. Exit status: 0 after SIGTERM, 1 for a model that gives no
numbers, 2 for bad input, 130 when interrupted.
"""

import argparse
import logging
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

from ..errors import InputError
from ..prediction.open_model import ComputeOptions, decision_threshold, open_model
from . import say
from .parser import Parser, add_computing, add_threshold, number

KEY = "TEXT_CLASSIFIER_API_KEY"  # an argument would be seen in the list of processes


def run(argv: list[str], program: str) -> int:
    """Serve until a signal; return the exit status. Raises InputError for bad input, and TrainingError for a
    model that gives no numbers."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    add = (parser := Parser(program, __doc__)).add_argument
    model = "a run, an exported folder or a checkpoint (default: the newest finished run)"
    add("model", nargs="?", type=Path, metavar="RUN", help=model)
    host = "address to listen on; 0.0.0.0 is all (default: 127.0.0.1, this machine only)"
    add("--host", default="127.0.0.1", help=host)
    port = "port to listen on; 0 is any free one (default: 8000)"
    add("--port", type=number(int, 0, 65_535), default=8000, help=port)
    hosts = "other names of this server, for the header Host (default: localhost and --host only)"
    add("--allowed_hosts", type=_host_names, default=[], metavar="NAME,NAME", help=hosts)
    add_threshold(add)
    add_computing(add, "maximum tokens in a batch, as for predict (default: 1024 on the CPU)")
    args = parser.parse_args(argv)
    api_key = os.environ.get(KEY)
    if api_key is not None and not re.fullmatch(r"[!-~]([ -~]*[!-~])?", api_key):
        raise InputError(
            f"{KEY} must be printable ASCII, without spaces around it; set another key, or unset it"
        )
    try:
        from ..serving.application import ServeOptions
        from ..serving.server import allowed_hosts, listen, serve
    except ImportError as error:
        raise InputError(
            f"serve needs FastAPI and others ({error}); install them: pip install -r requirements/serve.txt "
            "-c constraints.txt"
        ) from error
    listener = listen(args.host, args.port)
    options = ServeOptions(api_key, allowed_hosts(args.host, args.allowed_hosts))
    opened = open_model(args.model, ComputeOptions(args.device, args.precision, args.batch_tokens))
    model = replace(opened, threshold=decision_threshold(opened, args.threshold, say))
    return 130 if serve(model, options, args.host, listener) == signal.SIGINT else 0


def _host_names(value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    if wrong := [name for name in names if not re.fullmatch(r"[\w.-]+|[0-9A-Fa-f:.]+", name)]:
        raise argparse.ArgumentTypeError(
            f"names of hosts without a port are needed, separated by commas, found {wrong[0] or 'nothing'}"
        )
    return names
