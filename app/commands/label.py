"""The verb label; the docstring of its function is its help."""

import argparse
import logging
import re
import signal
import sys
from pathlib import Path

from ..config.shipped import E5_SMALL
from ..errors import counted, needed, say
from .named_model import folder_name
from .parser import DEVICES, Parser, setting
from .server_options import add_address, read_api_key

# A Chinese keyboard has the second one
COMMAS = re.compile("[,，]")
SHOW_GUESS = ["after", "asked"]
COLUMNS = {
    "text_column": "column of the text, by name or number from 0 (default: found by names and values)",
    "text_pair_column": "column of the second text of a pair (default: found in the same way)",
}
# Settings of reading have the names that they have in a training
MORE_READING = ["format", "sheet", "encoding", "header", "quoting"]


def label(argv: list[str], program: str) -> int:
    """Label texts on a page, while a model learns from the answers and says how good it is.

    python -m app label posts.csv --labels 好评,差评 --output labels.csv
    python -m app label posts.csv --labels 物流,味道,价格 --several --output labels.csv
    python -m app label posts.csv --labels 好评,差评 --output labels.csv --checkpoint checkpoints/sample-001

    The page, on http://127.0.0.1:8000, shows one text at a time; a digit or a click gives the label. Each
    answer is in the file before the next text is shown, and the same command continues there. A linear head
    on the encoder's vectors is fitted again after each answer. It chooses the next text, and is measured on a
    random tenth of the texts, from which it never learns. The file has all columns of the texts, and a
    training reads it as it is. docs/labelling.md has the details. Exit status: 0 after SIGTERM, 1 if the
    output cannot be written, 2 for bad input, 130 when interrupted.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    parser = _label_parser(program)
    args = parser.parse_args(argv)
    if args.labels is None or args.output is None:
        parser.error("--labels NAME,NAME and --output OUT are needed")
    api_key = read_api_key()
    with needed("serve"):
        from ..labelling.server import serve_labels
        from ..serving import server
        from ..serving.options import ServeOptions
    from ..labelling.label_file import check_name
    from ..prediction.load_checkpoint import check_folder
    from ..prediction.output_files import check_output

    # The file that is there is continued
    check_output(args.output, "--output", overwrite=True, source=args.pool)
    check_name(args.output)
    if args.checkpoint is not None:
        check_folder(args.checkpoint)
    listener = server.listen(args.host, args.port)
    hosts = server.allowed_hosts(args.host, args.allowed_hosts)
    from ..data.read import ReadOptions
    from ..labelling.application import LabelPage
    from ..labelling.pool import open_pool
    from ..labelling.session import LabelSession, SessionOptions
    from ..vectors.encoder import open_encoder
    from ..vectors.store import VectorStore

    reading = {}
    for name in (*COLUMNS, *MORE_READING):
        value = getattr(args, name)
        if value is not None:
            reading[name] = value
    pool = open_pool(args.pool, ReadOptions(**reading))
    cache_dir = SessionOptions.cache_dir
    # An encoder that cannot be opened is an error before the page is there
    encoder = open_encoder(args.model, args.checkpoint, cache_dir, args.device)
    options = SessionOptions(
        vectors=VectorStore(encoder, cache_dir),
        has_several=args.several,
        model=str(args.checkpoint or args.model),
    )
    page = LabelPage(
        file=Path(args.pool).name, has_several=args.several, asks_guess=args.show_guess == "asked"
    )
    serve_options = ServeOptions(api_key=api_key, allowed_hosts=hosts)
    with LabelSession(pool, args.labels, args.output, options) as session:
        received_signal = serve_labels(session, page, serve_options, args.host, listener)
        status = session.status()
    message = f"{args.output}: {counted(status['answers'], 'answer')}"
    if status["command"] is not None:
        message += f"; train with them: {status['command']}"
    say(message)
    return 130 if received_signal == signal.SIGINT else 0


def _label_parser(program: str) -> Parser:
    parser = Parser(program, label.__doc__)
    add = parser.add_argument
    add("pool", metavar="FILE", help="file of texts: CSV, Excel, JSON, plain text, ...")
    add(
        "--labels",
        type=_label_names,
        metavar="NAME,NAME",
        help="names of the labels (needed); those that OUT has are added, and more can be added on the page",
    )
    add(
        "--output",
        type=Path,
        metavar="OUT",
        help="file of the answers, .csv (needed); one that is there is continued",
    )
    add("--several", action="store_true", help="a text may have several labels, or none (default: one label)")
    add(
        "--show_guess",
        choices=SHOW_GUESS,
        default="after",
        help="when the page shows the model's guess: after the answer, or also before it, where the person "
        "asks (default: after)",
    )
    add(
        "--model",
        default=E5_SMALL,
        metavar="NAME",
        help=f"encoder that reads the texts, a value of model.name (default: {E5_SMALL})",
    )
    add(
        "--checkpoint",
        type=folder_name,
        metavar="RUN",
        help="a run whose encoder reads the texts in place of --model (default: none)",
    )
    for name, words in COLUMNS.items():
        add(f"--{name}", f"--data.{name}", type=setting(f"data.{name}"), metavar="COLUMN", help=words)
    for name in MORE_READING:
        add(f"--data.{name}", dest=name, type=setting(f"data.{name}"), help=argparse.SUPPRESS)
    add_address(add)
    add("--device", default="auto", help=DEVICES)
    return parser


def _label_names(text: str) -> list[str]:
    """Return the names of an option; raises ArgumentTypeError for fewer than two, and for one that is there
    twice."""
    names = [part.strip() for part in COMMAS.split(text)]
    for name in names:
        if names.count(name) > 1:
            raise argparse.ArgumentTypeError(f"must be different names, found '{name}' twice")
    if len(names) < 2 or "" in names:
        found = text or "nothing"
        raise argparse.ArgumentTypeError(f"must be two or more names with commas between, found {found}")
    return names
