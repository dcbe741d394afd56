"""The verbs for a trained model, but for predict; their docstrings are their helps."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, needed, say, show
from ..prediction import STRATEGIES, SUFFIXES
from ..runtime.processes import ended_by_ctrl_c
from .parser import DEVICES, Parser, add_computing, number

if TYPE_CHECKING:
    from ..data.rows import Row

POOL_FORMATS = {suffix: format for suffix, format in SUFFIXES.items() if format != "parquet"}
KEY = "TEXT_CLASSIFIER_API_KEY"  # an argument would be seen in the list of processes


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
    add = (parser := Parser(program, explain.__doc__)).add_argument
    model = "a run, or any transformers checkpoint for sequence classification"
    add("model", type=Path, metavar="RUN", help=model)
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
    texts_of_labels = [render_text(explanation) for explanation in explanations]
    status = show("\n\n".join(texts_of_labels) + "\n")
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
    args = _suggest_arguments(argv, program)
    import numpy as np

    from ..prediction.open_model import ComputeOptions, open_model
    from ..prediction.output import write_predictions
    from ..prediction.output_files import check_output
    from ..prediction.sources import open_file
    from ..prediction.suggested_rows import check_strategy, choose_rows, usual_strategy
    from ..prediction.trained_model import dataset_of_run

    suffix = args.target.suffix.lower()
    if suffix not in POOL_FORMATS:
        raise InputError(f"{args.target}: the name must end in {', '.join(POOL_FORMATS)}")
    check_output(args.target)
    with ended_by_ctrl_c():
        opened = open_model(args.checkpoint, ComputeOptions(args.device))
    folder = opened.folder
    task = opened.predictor.task
    if task.predicts_number:
        raise InputError(f"{folder}: suggest needs a model that says how sure it is, not a number")
    strategy = args.strategy or usual_strategy(task)
    check_strategy(strategy, task)
    source = open_file(args.pool, opened.trained, {})
    dataset = dataset_of_run(folder, "suggest needs", "name another run with --checkpoint")
    known_texts: set[str | tuple[str, str]] = set()
    for table in dataset.tables:
        known_texts.update(table.texts(np.arange(table.num_rows)))
    rows: dict[str | tuple[str, str], Row] = {}
    pool = source.rows("skip", with_records=True)
    for row in pool:
        texts = row.text if row.pair is None else (row.text, row.pair)
        rows.setdefault(texts, row)
    new_rows = [row for texts, row in rows.items() if texts not in known_texts]
    message = (
        f"{len(new_rows):,} new rows; left out: {pool.num_good - len(rows):,} repeated, "
        f"{len(rows) - len(new_rows):,} known to the run, {pool.num_bad:,} invalid"
    )
    if not new_rows:
        raise InputError(f"{source.name}: the pool has no new row ({message}); name another file")
    say(f"{source.name}: {message}")
    opened.trained.check_pairs(source.has_pairs, "name a pool of the same form")
    guesses = list(opened.predictor.predict(new_rows))
    probabilities = np.stack([guess.probabilities for guess in guesses])
    chosen = choose_rows(
        strategy,
        min(args.num, len(new_rows)),
        probabilities,
        confidence=task.confidence(probabilities),
        answers=task.decide_by_probabilities(probabilities),
    )
    chosen_guesses = [guesses[row_id] for row_id in chosen]
    write_predictions(args.target, POOL_FORMATS[suffix], source, opened, chosen_guesses)
    say(f"{len(chosen):,} rows in {args.target}, chosen by {strategy}")


def _suggest_arguments(argv: list[str], program: str) -> argparse.Namespace:
    parser = Parser(program, suggest.__doc__)
    add = parser.add_argument
    add("pool", metavar="POOL", help="file of texts without labels, read as in the run's training")
    add("target", metavar="OUT", type=Path, help="the new file; .csv, .jsonl or .xlsx")
    add("--checkpoint", type=Path, metavar="RUN", help="a run (default: the one that finished last)")
    add("--num", type=number(int, 1), default=50, help="rows to choose (default: 50)")
    strategy = "(default: breaking_ties; with several labels a row least_confidence)"
    add("--strategy", choices=STRATEGIES, help=strategy)
    add("--device", default="auto", help=DEVICES)
    return parser.parse_args(argv)


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
    add = (parser := Parser(program, export.__doc__)).add_argument
    model = "a run, or a checkpoint of another program (then with --rows)"
    add("model", type=Path, metavar="RUN", help=model)
    precision = "int8 is smaller, and faster on most CPUs (default: fp32)"
    add("--precision", choices=["fp32", "int8"], default="fp32", help=precision)
    output = "folder to write (default: RUN-onnx, or RUN-onnx-int8)"
    add("--output", type=Path, metavar="FOLDER", help=output)
    tolerance = "largest share of the labels with a probability of at least 0.6 that may change"
    tolerance += " (default: 0.001, for int8 0.01)"
    add("--tolerance", type=number(float, 0, 1), metavar="SHARE", help=tolerance)
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
    add = (parser := Parser(program, serve.__doc__)).add_argument
    model = "a run, an exported folder or a checkpoint (default: the newest finished run)"
    add("model", nargs="?", type=Path, metavar="RUN", help=model)
    host = "address to listen on; 0.0.0.0 is all (default: 127.0.0.1, this machine only)"
    add("--host", default="127.0.0.1", help=host)
    port = "port to listen on; 0 is any free one (default: 8000)"
    add("--port", type=number(int, 0, 65_535), default=8000, help=port)
    hosts = "other names of this server, for the header Host (default: localhost and --host only)"
    add("--allowed_hosts", type=_host_names, default=[], metavar="NAME,NAME", help=hosts)
    add_computing(add, "maximum tokens in a batch, as for predict (default: 1024 on the CPU)")
    args = parser.parse_args(argv)
    api_key = os.environ.get(KEY)
    if api_key is not None and not re.fullmatch(r"[!-~]([ -~]*[!-~])?", api_key):
        raise InputError(
            f"{KEY} must be printable ASCII, without spaces around it; set another key, or unset it"
        )
    from ..prediction.open_model import ComputeOptions, open_model

    with needed("serve"):
        from ..serving import application
    listener = application.listen(args.host, args.port)
    hosts = application.allowed_hosts(args.host, args.allowed_hosts)
    compute = ComputeOptions(args.device, args.precision, args.batch_tokens)
    model, options = open_model(args.model, compute, args.threshold), application.ServeOptions(api_key, hosts)
    return 130 if application.serve(model, options, args.host, listener) == signal.SIGINT else 0


def _host_names(value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    if wrong := [name for name in names if not re.fullmatch(r"[\w.-]+|[0-9A-Fa-f:.]+", name)]:
        raise argparse.ArgumentTypeError(
            f"names of hosts without a port are needed, separated by commas, found {wrong[0] or 'nothing'}"
        )
    return names
