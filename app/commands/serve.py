"""Answer requests for labels over HTTP with a trained model, and show a page for people.

python -m app serve                                               with the run that finished last, on http://127.0.0.1:8000
python -m app serve checkpoints/sample-001 --port 8080
TEXT_CLASSIFIER_API_KEY=secret python -m app serve checkpoints/sample-001 --host 0.0.0.0

POST /predict takes {"inputs": "今天真开心"}, a list of texts or a list of pairs, and answers with labels and
scores; GET / is the page, GET /health, /info and /metrics are for machines. SIGTERM finishes the requests
that have arrived; SIGHUP loads the model again. docs/serving.md has the details. Exit status: 0 after
SIGTERM, 1 for a model that gives no numbers, 2 for bad input, 130 when interrupted.
"""

import argparse
import logging
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..errors import InputError
from ..prediction.open_model import OpenedModel, open_model
from .parser import Parser, Rule, at_least, between, number
from .predict_options import add_decision_options, add_device_options
from .predict_steps import choose_threshold, compute_options

PORT = Rule("from 0 to 65535", lambda port: 0 <= port < 1 << 16)
COUNT = number(int, at_least(1))
WAIT = number(float, Rule("from 0 to 1000 milliseconds", lambda wait: 0 <= wait <= 1000))
SECONDS = number(float, Rule("above 0 and below 86400 seconds", lambda seconds: 0 < seconds < 86_400))
# An argument would be seen in the list of processes
KEY = "TEXT_CLASSIFIER_API_KEY"
DEFAULT_EXAMPLES = 6


def build_parser(program: str) -> Parser:
    """Return the parser of the command line."""
    parser = Parser(program, __doc__)
    add = parser.add_argument
    model = "a run, an exported folder or a checkpoint (default: the newest finished run)"
    add("model", nargs="?", type=Path, metavar="RUN", help=model)
    host = "address to listen on; 0.0.0.0 is all (default: 127.0.0.1, this machine only)"
    add("--host", default="127.0.0.1", help=host)
    port = "port to listen on; 0 is any free one (default: 8000)"
    add("--port", type=number(int, PORT), default=8000, help=port)
    hosts = (
        "other names of this server, which the header Host may have (default: none but localhost and --host)"
    )
    add("--allowed_hosts", type=_host_names, default=[], metavar="NAME,NAME", help=hosts)
    how_sure = parser.add_argument_group("how sure").add_argument
    evidence = "requests may ask for the nearest training rows, whose vectors are computed at the first start"
    how_sure("--evidence", action="store_true", help=f"{evidence} (default: they may not)")
    add_decision_options(how_sure)
    page = parser.add_argument_group("page").add_argument
    examples = (
        "test rows of the run that the page shows as examples (default: 6; 0 where other machines reach the "
        "server and there is no API key)"
    )
    page("--examples", type=number(int, between(0, 50)), metavar="TEXTS", help=examples)
    seconds = "time for the explanation of a label, else 504; 0: there is none (default: 60)"
    no_day = Rule("from 0 to below 86400", lambda seconds: 0 <= seconds < 86_400)
    page("--explain_seconds", type=number(float, no_day), default=60, metavar="SECONDS", help=seconds)
    add_device_options(parser.add_argument_group("computing").add_argument)
    _add_limits(parser.add_argument_group("limits").add_argument)
    return parser


def _add_limits(add: Callable) -> None:
    timeout = "time for an answer, else 504 (default: 30)"
    add("--timeout", type=SECONDS, default=30, metavar="SECONDS", help=timeout)
    slow = "time for a client to send the body of a request, or its next request (default: 15)"
    add("--receive_timeout", type=SECONDS, default=15, metavar="SECONDS", help=slow)
    connections = "connections that may be open; requests on more are refused with 503 (default: 512)"
    add("--max_connections", type=COUNT, default=512, metavar="CONNECTIONS", help=connections)
    waiting = "texts that may wait or be computed at a time; more are refused with 429 (default: 512)"
    add("--max_waiting", type=COUNT, default=512, metavar="TEXTS", help=waiting)
    wait = "most time that a batch waits for as many requests as the one before (default: 3)"
    add("--batch_wait", type=WAIT, default=3, metavar="MILLISECONDS", help=wait)
    add("--max_texts", type=COUNT, default=128, metavar="TEXTS", help="texts of a request (default: 128)")
    characters = "characters of a text (default: 100000)"
    add("--max_characters", type=COUNT, default=100_000, metavar="CHARACTERS", help=characters)
    body = "bytes of a request (default: 1048576)"
    add("--max_body", type=COUNT, default=1 << 20, metavar="BYTES", help=body)


def _host_names(value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    if wrong := [name for name in names if not re.fullmatch(r"[\w.-]+|[0-9A-Fa-f:.]+", name)]:
        raise argparse.ArgumentTypeError(
            f"names of hosts without a port are needed, separated by commas, found {wrong[0] or 'nothing'}"
        )
    return names


def check(args: argparse.Namespace) -> None:
    """Raise InputError for values that do not go together."""
    if args.threshold is not None and args.abstain is not None:
        raise InputError("--threshold sets the threshold and --abstain chooses one; remove one of them")
    if args.max_texts > args.max_waiting:
        raise InputError(
            f"--max_waiting must be at least --max_texts {args.max_texts}, found {args.max_waiting}"
        )


def run(argv: list[str], program: str) -> int:
    """Serve until a signal; return the exit status. Raises InputError for values that do not fit."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    args = build_parser(program).parse_args(argv)
    check(args)
    api_key = os.environ.get(KEY)
    if api_key is not None and (
        api_key.strip() != api_key or not api_key or not api_key.isprintable() or not api_key.isascii()
    ):
        raise InputError(
            f"{KEY} must be printable ASCII, without spaces around it; set another key, or unset it"
        )
    try:
        from ..serving.hosts import allowed_hosts
        from ..serving.server import is_local, serve
        from ..serving.service import Limits, ServeOptions
    except ImportError as error:
        raise InputError(
            f"serve needs FastAPI and others ({error}); install them: pip install -r requirements/serve.txt "
            "-c constraints.txt"
        ) from error
    limits = Limits(args.max_body, args.max_texts, args.max_characters)
    options = ServeOptions(
        limits,
        args.max_waiting,
        args.timeout,
        args.batch_wait / 1000,
        api_key,
        args.receive_timeout,
        args.max_connections,
        allowed_hosts(args.host, args.allowed_hosts),
        args.explain_seconds,
    )
    examples = args.examples
    if examples is None:
        # Strangers do not get rows of the data unless that is asked for
        examples = DEFAULT_EXAMPLES if is_local(args.host) or api_key else 0
    compute = compute_options(args)

    def load() -> OpenedModel:
        opened = open_model(args.model, compute)
        from ..prediction.examples import example_inputs
        from ..prediction.nearest_rows import NearestRows

        nearest = NearestRows(opened) if args.evidence else None
        shown = example_inputs(opened.folder, examples)
        return replace(opened, threshold=choose_threshold(args, opened), nearest=nearest, examples=shown)

    return 130 if serve(load, options, args.host, args.port) == signal.SIGINT else 0
