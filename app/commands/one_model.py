"""The verbs for a trained model, without predict; their docstrings are their helps."""

import argparse
import logging
import os
import re
import signal
import sys
from pathlib import Path

from ..errors import InputError, needed, say, show
from ..prediction import STRATEGIES
from .parser import DEVICES, Parser, add_computing, number

KEY = "TEXT_CLASSIFIER_API_KEY"  # an argument would be seen in the list of processes
# A header of HTTP can have such a key
KEY_FORM = re.compile(r"[!-~]([ -~]*[!-~])?")
HOST_NAME = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]+")


def explain(argv: list[str], program: str) -> int:
    """Say which characters of a text made a model choose its label, and whether that is an explanation.

    python -m app explain checkpoints/sample-001 今天真开心，下班去吃火锅
    python -m app explain checkpoints/sample-001 今天真开心，下班去吃火锅 --label 悲伤
    python -m app explain checkpoints/pairs-001 怎么退款 --text_pair 钱能退吗
    python -m app explain checkpoints/sample-001 "$(cat letter.txt)" --html why.html

    Integrated gradients (captum) of the log-odds of the label, for each character. They must pass a test:
    deleting the characters they favour must lower the log-odds more than deleting at random does. Where they
    do not, it says that this is no explanation. It speaks the language of LANG. Exit status: 0, also then; 1
    for a model that gives no numbers, or where the output cannot be written; 2 for bad input.
    """
    parser = Parser(program, explain.__doc__)
    add = parser.add_argument
    add(
        "model",
        type=Path,
        metavar="RUN",
        help="a run, or any transformers checkpoint for sequence classification",
    )
    add("text", metavar="TEXT", help="the text")
    add("--text_pair", metavar="TEXT", help="the second text of a pair (default: none)")
    add("--label", metavar="LABEL", help="the label to explain (default: each predicted one)")
    add("--html", type=Path, metavar="FILE", help="new page to write (default: none)")
    add("--device", default="auto", help=DEVICES)
    args = parser.parse_args(argv)
    from ..prediction.output_files import check_output, write_page
    from ..prediction.trained_model import read_trained_model

    if args.html is not None:
        check_output(args.html, "--html")
    from ..explanation.explained_model import ExplainedModel
    from ..explanation.explanation import explain as explain_texts
    from ..explanation.page import render_page, render_text

    trained = read_trained_model(args.model)
    trained.check_pairs(args.text_pair is not None, "a pair is a text and --text_pair")
    texts = (args.text,) if args.text_pair is None else (args.text, args.text_pair)
    model = ExplainedModel(args.model, args.device)
    explanations = explain_texts(model, texts, args.label)
    text = "\n\n".join(map(render_text, explanations))
    status = show(f"{text}\n")
    if args.html is not None:
        write_page(args.html, render_page(explanations), "--html")
        say(f"Saved in {args.html}")
    return status


def suggest(argv: list[str], program: str) -> None:
    """Choose the rows of a pool without labels that are worth labelling next, with the model's guess.

    python -m app suggest pool.csv next.csv                    50 rows, by the run that finished last
    python -m app suggest pool.csv next.csv --checkpoint checkpoints/sample-001 --num 100

    Rows that the run was trained or evaluated with are left out, and repeated texts. The strategies have the
    names of the library small-text: random; by the probabilities, least_confidence and breaking_ties, which
    is not for several labels a row. highest_confidence is for self-training: the surest rows of each label,
    to be trained on with the guess as label. CSV, JSON Lines and Excel have all columns of the pool, then the
    guess and its probabilities, as predict writes them. No file is overwritten. Exit status: 0, 1 if OUT
    cannot be written, 2 for bad input.
    """
    parser = Parser(program, suggest.__doc__)
    add = parser.add_argument
    add("pool", metavar="POOL", help="file of texts without labels, read as in the run's training")
    add("target", metavar="OUT", type=Path, help="the new file; .csv, .jsonl or .xlsx")
    add("--checkpoint", type=Path, metavar="RUN", help="a run (default: the one that finished last)")
    add("--num", type=number(int, 1), default=50, help="rows to choose (default: 50)")
    add(
        "--strategy",
        choices=STRATEGIES,
        help="(default: breaking_ties; with several labels a row least_confidence)",
    )
    add("--device", default="auto", help=DEVICES)
    args = parser.parse_args(argv)
    from ..runs.suggest import suggest_rows

    suggest_rows(
        pool=args.pool,
        target=args.target,
        run=args.checkpoint,
        num_rows=args.num,
        strategy=args.strategy,
        device=args.device,
    )


def export(argv: list[str], program: str) -> int:
    """Export a trained model for ONNX Runtime, and compare it with the original on its own dev rows.

    python -m app export checkpoints/sample-001
    python -m app export checkpoints/sample-001 --precision int8 --output small-model
    python predict.py --checkpoint small-model 今天真开心

    Writes a new folder with the graph, the tokenizer and a record of the comparison: the largest difference
    of a logit, how many labels changed, also of the rows of which the model was sure, macro F1 before and
    after. predict and serve take the folder like a run, and do not need torch for it. Exit status: 0, 1 where
    more changed than allowed (nothing is then written), 2 for bad input.
    """
    parser = Parser(program, export.__doc__)
    add = parser.add_argument
    add(
        "model",
        type=Path,
        metavar="RUN",
        help="a run, or a checkpoint of another program (then with --rows)",
    )
    add(
        "--precision",
        choices=["fp32", "int8"],
        default="fp32",
        help="int8 is smaller, and faster on most CPUs (default: fp32)",
    )
    add(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="folder to write (default: RUN-onnx, or RUN-onnx-int8)",
    )
    add(
        "--tolerance",
        type=number(float, 0, 1),
        metavar="SHARE",
        help="largest share of the labels with a probability of at least 0.6 that may change "
        "(default: 0.001, for int8 0.01)",
    )
    add("--rows", metavar="FILE", help="file of texts to compare on (default: the dev rows of the run)")
    args = parser.parse_args(argv)
    from ..export.export import export as export_model
    from ..prediction.output_files import written
    from ..prediction.trained_model import read_trained_model
    from ..report.commands import first_train_file, path_word, predict_command, verb_command

    ending = "-onnx" if args.precision == "fp32" else f"-onnx-{args.precision}"
    output = args.output or Path(f"{args.model}{ending}")
    with written(f"--output {output}"):
        proof, problem = export_model(args.model, output, args.precision, args.tolerance, args.rows)
    trained = read_trained_model(args.model)
    file = first_train_file(trained.train_files)
    if problem is None:
        saved = f"Saved in {output}; classify text with: {predict_command(output, trained.reading, file)}"
        return show(f"{proof}\n{saved}\n")
    show(f"{proof}\n")
    remedy = f"Predict with the run itself: {predict_command(args.model, trained.reading, file)}"
    if args.precision == "int8":
        command = verb_command("export", path_word(args.model))
        remedy = f"In fp32 it is exact, and larger and slower: {command}"
    say(f"error: {problem}; nothing is written. {remedy}")
    return 1


def serve(argv: list[str], program: str) -> int:
    """Answer requests for labels over HTTP with a trained model, and show a page for people.

    python -m app serve                              with the run that finished last, on http://127.0.0.1:8000
    python -m app serve checkpoints/sample-001 --port 8080
    TEXT_CLASSIFIER_API_KEY=secret python -m app serve checkpoints/sample-001 --host 0.0.0.0

    POST /predict takes {"inputs": "今天真开心"}, a list of texts or a list of pairs, and answers with labels
    and scores; GET / is the page, GET /health, /info and /metrics are for machines. SIGTERM finishes the
    requests that have arrived. docs/serving.md has the details. Exit status: 0 after SIGTERM, 1 for a model
    that gives no numbers, 2 for bad input, 130 when interrupted.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    args = _serve_parser(program).parse_args(argv)
    api_key = os.environ.get(KEY)
    if api_key is not None and not KEY_FORM.fullmatch(api_key):
        raise InputError(
            f"{KEY} must be printable ASCII, without spaces around it; set another key, or unset it"
        )
    from ..prediction.open_model import ComputeOptions, open_model

    with needed("serve"):
        from ..serving import server
        from ..serving.options import ServeOptions
    listener = server.listen(args.host, args.port)
    hosts = server.allowed_hosts(args.host, args.allowed_hosts)
    compute = ComputeOptions(args.device, args.precision, args.batch_tokens)
    model = open_model(args.model, compute, args.threshold)
    options = ServeOptions(api_key=api_key, allowed_hosts=hosts)
    received_signal = server.serve(model, options, args.host, listener)
    return 130 if received_signal == signal.SIGINT else 0


def _serve_parser(program: str) -> Parser:
    parser = Parser(program, serve.__doc__)
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
    add(
        "--port",
        type=number(int, 0, 65_535),
        default=8000,
        help="port to listen on; 0 is any free one (default: 8000)",
    )
    add(
        "--allowed_hosts",
        type=_host_names,
        default=[],
        metavar="NAME,NAME",
        help="other names of this server, for the header Host (default: localhost and --host only)",
    )
    add_computing(add, "maximum tokens in a batch, as for predict (default: 1024 on the CPU)")
    return parser


def _host_names(text: str) -> list[str]:
    """Return the names of an option; raises ArgumentTypeError for one that is no name of a host."""
    names = []
    for part in text.split(","):
        name = part.strip()
        if not HOST_NAME.fullmatch(name):
            raise argparse.ArgumentTypeError(
                f"names of hosts without a port are needed, separated by commas, found {name or 'nothing'}"
            )
        names.append(name)
    return names
