"""Answer requests for labels over HTTP with a trained model, and show a page for people.

python -m app serve                                               with the run that finished last, on http://127.0.0.1:8000
python -m app serve checkpoints/sample-001 --port 8080
TEXT_CLASSIFIER_API_KEY=secret python -m app serve checkpoints/sample-001 --host 0.0.0.0

POST /predict takes {"inputs": "今天真开心"}, a list of texts or a list of pairs, and answers with labels and
scores; GET / is the page, GET /health, /info and /metrics are for machines. SIGTERM finishes the requests
that have arrived; SIGHUP loads the model again. docs/serving.md has the details. Exit status: 0 after
SIGTERM, 1 for a model that gives no numbers, 2 for bad input, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

from ..config.shipped import PROGRAM
from ..errors import InputError
from ..prediction.beside import nearest_rows
from ..prediction.open_model import ComputeOptions, OpenedModel, open_model
from .exit_status import exit_status
from .predict_options import Parser, add_decision_options, add_device_options
from .predict_steps import choose_threshold

# An argument would be seen in the list of processes
KEY = "TEXT_CLASSIFIER_API_KEY"
DEFAULT_EXAMPLES, MAX_EXAMPLES = 6, 50


def build_parser(program: str) -> Parser:
    """Return the parser of the command line."""
    description = __doc__.replace("python -m app serve", program)
    parser = Parser(
        program,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "model",
        nargs="?",
        type=Path,
        metavar="RUN",
        help="a run, an exported folder or a checkpoint (default: the newest finished run)",
    )
    add(
        "--host",
        default="127.0.0.1",
        help="address to listen on; 0.0.0.0 is all (default: 127.0.0.1, this machine only)",
    )
    add("--port", type=int, default=8000, help="port to listen on; 0 is any free one (default: 8000)")
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
    page("--examples", type=int, metavar="TEXTS", help=examples)
    seconds = "time for the explanation of a label, else 504; 0: there is none (default: 60)"
    page("--explain_seconds", type=float, default=60, metavar="SECONDS", help=seconds)
    add_device_options(parser.add_argument_group("computing").add_argument)
    add = parser.add_argument_group("limits").add_argument
    add(
        "--timeout",
        type=float,
        default=30,
        metavar="SECONDS",
        help="time for an answer, else 504 (default: 30)",
    )
    slow = "time for a client to send the body of a request, or its next request (default: 15)"
    add("--receive_timeout", type=float, default=15, metavar="SECONDS", help=slow)
    connections = "connections that may be open; requests on more are refused with 503 (default: 512)"
    add("--max_connections", type=int, default=512, metavar="CONNECTIONS", help=connections)
    waiting = "texts that may wait or be computed at a time; more are refused with 429 (default: 512)"
    add("--max_waiting", type=int, default=512, metavar="TEXTS", help=waiting)
    wait = "most time that a batch waits for as many requests as the one before (default: 3)"
    add("--batch_wait", type=float, default=3, metavar="MILLISECONDS", help=wait)
    add("--max_texts", type=int, default=128, metavar="TEXTS", help="texts of a request (default: 128)")
    characters = "characters of a text (default: 100000)"
    add("--max_characters", type=int, default=100_000, metavar="CHARACTERS", help=characters)
    add(
        "--max_body", type=int, default=1 << 20, metavar="BYTES", help="bytes of a request (default: 1048576)"
    )
    return parser


def _host_names(value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    if wrong := [name for name in names if not re.fullmatch(r"[\w.-]+|[0-9A-Fa-f:.]+", name)]:
        raise argparse.ArgumentTypeError(
            f"names of hosts without a port are needed, separated by commas, found {wrong[0] or 'nothing'}"
        )
    return names


def check(args: argparse.Namespace) -> None:
    """Raise InputError for values that are out of range or do not go together."""
    if not 0 <= args.port < 1 << 16:
        raise InputError(f"--port must be from 0 to 65535, found {args.port}")
    if args.threshold is not None and args.abstain is not None:
        raise InputError("--threshold sets the threshold and --abstain chooses one; remove one of them")
    check_limits(args)
    if not 0 <= args.batch_wait <= 1000:
        raise InputError(f"--batch_wait must be from 0 to 1000 milliseconds, found {args.batch_wait:g}")
    if args.max_texts > args.max_waiting:
        raise InputError(
            f"--max_waiting must be at least --max_texts {args.max_texts}, found {args.max_waiting}"
        )


def check_limits(args: argparse.Namespace) -> None:
    """Raise InputError for a limit that nothing could keep."""
    if args.examples is not None and not 0 <= args.examples <= MAX_EXAMPLES:
        raise InputError(f"--examples must be from 0 to {MAX_EXAMPLES}, found {args.examples}")
    if not 0 <= args.explain_seconds < 86_400:
        raise InputError(f"--explain_seconds must be from 0 to below 86400, found {args.explain_seconds:g}")
    for name in ("batch_tokens", "max_waiting", "max_texts", "max_characters", "max_body", "max_connections"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise InputError(f"--{name} must be at least 1, found {value}")
    for name in ("timeout", "receive_timeout"):
        if not 0 < getattr(args, name) < 86_400:
            raise InputError(
                f"--{name} must be above 0 and below 86400 seconds, found {getattr(args, name):g}"
            )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; return the exit status. Raises InputError for values that do not fit."""
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
            f"serve needs FastAPI and others ({error}); install them: pip install -r requirements-serve.txt "
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
    compute = ComputeOptions(
        args.device, args.precision, args.batch_tokens, args.calibrate == "auto", args.runtime
    )

    def load() -> OpenedModel:
        opened = open_model(args.model, compute)
        nearest = nearest_rows(opened) if args.evidence else None
        from ..prediction.examples import example_inputs

        shown = example_inputs(opened.folder, examples)
        return replace(opened, threshold=choose_threshold(args, opened), nearest=nearest, examples=shown)

    return 130 if serve(load, options, args.host, args.port) == signal.SIGINT else 0


def main(argv: list[str], program: str = f"{PROGRAM} serve") -> int:
    """Run the command line; return the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    return exit_status(lambda: run(build_parser(program).parse_args(argv)))
