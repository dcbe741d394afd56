"""The verbs for a trained model, without predict; their docstrings are their helps."""

import logging
import signal
import sys
from pathlib import Path

from ..errors import needed, say, show
from ..prediction import STRATEGIES
from .named_model import (
    add_checkpoint,
    add_model,
    check_texts,
    named_model,
    take_first,
    take_model,
)
from .parser import DEVICES, Parser, add_computing, add_overwrite, number
from .server_options import add_address, read_api_key


def explain(argv: list[str], program: str) -> int:
    """Say which characters of a text made a model choose its label, and whether that is an explanation.

    python -m app explain 今天真开心，下班去吃火锅                  with the run that finished last
    python -m app explain checkpoints/sample-001 今天真开心，下班去吃火锅 --label 悲伤
    python -m app explain checkpoints/pairs-001 怎么退款 --text_pair 钱能退吗
    python -m app explain checkpoints/sample-001 "$(cat letter.txt)" --html why.html

    Integrated gradients (captum) of the log-odds of the label, for each character. They must pass a test:
    deleting the characters they favour must lower the log-odds more than deleting at random does. Where they
    do not, it says that this is no explanation. It speaks the language of LANG. Exit status: 0, also then; 1
    for a model that gives no numbers, or where the output cannot be written; 2 for bad input.
    """
    parser = Parser(program, explain.__doc__, usage=f"{program} [RUN] TEXT [OPTION ...]")
    add = parser.add_argument
    words_help = (
        "a run, or any transformers checkpoint for sequence classification (default: the newest finished "
        "run); then the text, in quotes where it has spaces; after -- it may begin with a dash"
    )
    add("words", nargs="*", metavar="RUN TEXT", help=words_help)
    add_checkpoint(add)
    add("--text_pair", metavar="TEXT", help="the second text of a pair (default: none)")
    add("--label", metavar="LABEL", help="the label to explain (default: each predicted one)")
    add("--html", type=Path, metavar="FILE", help="new page to write (default: none)")
    add_overwrite(add, "replace the page that is there (default: that is an error)")
    add("--device", default="auto", help=DEVICES)
    args, words = parser.parse_words(argv)
    model, texts = take_model(words)
    if model is None and args.checkpoint is None and len(words.before) == 2:
        # There is one text only, so the other word must be the model
        model, texts = take_first(words)
    if len(texts.all) != 1:
        parser.error(f"one TEXT is needed, found {len(texts.all)}; write it in quotes where it has spaces")
    check_texts(texts, 'to explain its text, write "$(cat {file})"')
    from ..prediction.output_files import check_output, write_page
    from ..prediction.trained_model import read_trained_model

    if args.html is not None:
        check_output(args.html, "--html", args.overwrite)
    from ..explanation.explained_model import ExplainedModel
    from ..explanation.explanation import explain as explain_texts
    from ..explanation.page import render_page, render_text

    folder = named_model(model, args.checkpoint)
    trained = read_trained_model(folder)
    trained.check_pairs(args.text_pair is not None, "a pair is a text and --text_pair")
    parts = tuple(texts.all)
    if args.text_pair is not None:
        parts += (args.text_pair,)
    explanations = explain_texts(ExplainedModel(folder, args.device), parts, args.label)
    text = "\n\n".join(map(render_text, explanations))
    status = show(f"{text}\n")
    if args.html is not None:
        write_page(args.html, render_page(explanations), "--html", args.overwrite)
        say(f"Saved in {args.html}")
    return status


def suggest(argv: list[str], program: str) -> None:
    """Choose the rows of a pool without labels that are worth labelling next, with the model's guess.

    python -m app suggest pool.csv next.csv                    50 rows, by the run that finished last
    python -m app suggest checkpoints/sample-001 pool.csv next.csv --num 100

    Rows that the run was trained or evaluated with are left out, and repeated texts. The strategies have the
    names of the library small-text: random; by the probabilities, least_confidence and breaking_ties, which
    is not for several labels a row. highest_confidence is for self-training: the surest rows of each label,
    to be trained on with the guess as label. CSV, JSON Lines and Excel have all columns of the pool, then the
    guess and its probabilities, as predict writes them. Exit status: 0, 1 if OUT cannot be written, 2 for bad
    input.
    """
    parser = Parser(program, suggest.__doc__, usage=f"{program} [RUN] POOL OUT [OPTION ...]")
    add = parser.add_argument
    words_help = (
        "a run (default: the one that finished last); then the file of texts without labels, read as in the "
        "run's training; then the file to write: .csv, .jsonl or .xlsx"
    )
    add("words", nargs="*", metavar="RUN POOL OUT", help=words_help)
    add_checkpoint(add)
    add_overwrite(add)
    add("--num", type=number(int, 1), default=50, help="rows to choose (default: 50)")
    add(
        "--strategy",
        choices=STRATEGIES,
        help="(default: breaking_ties; with several labels a row least_confidence)",
    )
    add("--device", default="auto", help=DEVICES)
    args, words = parser.parse_words(argv)
    model, files = take_model(words)
    if model is None and len(words.before) == 3:
        model, files = take_first(words)
    if len(files.all) != 2:
        parser.error(f"a file POOL and a file OUT are needed, found {len(files.all)} names")
    pool, target = files.all
    from ..runs.suggest import suggest_rows

    suggest_rows(
        pool=pool,
        target=Path(target),
        run=named_model(model, args.checkpoint),
        num_rows=args.num,
        strategy=args.strategy,
        device=args.device,
        overwrite=args.overwrite,
    )


def export(argv: list[str], program: str) -> int:
    """Export a trained model for ONNX Runtime, and compare it with the original on its own dev rows.

    python -m app export checkpoints/sample-001
    python -m app export checkpoints/sample-001 --precision int8 --output small-model
    python predict.py small-model 今天真开心

    Writes a folder with the graph, the tokenizer and a record of the comparison: the largest difference
    of a logit, how many labels changed, also of the rows of which the model was sure, macro F1 before and
    after. predict and serve take the folder like a run, and do not need torch for it. Exit status: 0, 1 where
    more changed than allowed (nothing is then written), 2 for bad input.
    """
    parser = Parser(program, export.__doc__)
    add = parser.add_argument
    model_help = (
        "a run, or a checkpoint of another program, then with --rows (default: the newest finished run)"
    )
    add_model(add, model_help)
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
    add(
        "--encoder_alone",
        action="store_true",
        help="without the character n-grams that answer beside the encoder (default: with them)",
    )
    overwrite_help = (
        "replace an earlier export, once the new one is accepted; a folder that has other files is not "
        "replaced (default: a folder that exists is an error)"
    )
    add_overwrite(add, overwrite_help)
    args = parser.parse_args(argv)
    from ..export.export import export as export_model
    from ..prediction.output_files import written
    from ..prediction.trained_model import read_trained_model
    from ..report.commands import first_train_file, path_word, predict_command, verb_command

    ending = "-onnx" if args.precision == "fp32" else f"-onnx-{args.precision}"
    folder = named_model(args.model, args.checkpoint)
    output = args.output or Path(f"{folder}{ending}")
    with written(f"--output {output}"):
        proof, problem = export_model(
            folder,
            output,
            precision=args.precision,
            tolerance=args.tolerance,
            rows_file=args.rows,
            overwrite=args.overwrite,
            encoder_alone=args.encoder_alone,
        )
    trained = read_trained_model(folder)
    file = first_train_file(trained.train_files)
    if problem is None:
        saved = f"Saved in {output}; classify text with: {predict_command(output, trained.reading, file)}"
        return show(f"{proof}\n{saved}\n")
    show(f"{proof}\n")
    remedy = f"Predict with the run itself: {predict_command(folder, trained.reading, file)}"
    if args.precision == "int8":
        command = verb_command("export", path_word(folder))
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
    api_key = read_api_key()
    from ..prediction.open_model import ComputeOptions, open_model

    with needed("serve"):
        from ..serving import server
        from ..serving.options import ServeOptions
    listener = server.listen(args.host, args.port)
    hosts = server.allowed_hosts(args.host, args.allowed_hosts)
    compute = ComputeOptions(args.device, args.precision, args.batch_tokens)
    model = open_model(named_model(args.model, args.checkpoint), compute, args.threshold)
    options = ServeOptions(api_key=api_key, allowed_hosts=hosts)
    received_signal = server.serve(model, options, args.host, listener)
    return 130 if received_signal == signal.SIGINT else 0


def _serve_parser(program: str) -> Parser:
    parser = Parser(program, serve.__doc__)
    add = parser.add_argument
    add_model(add)
    add_address(add)
    add_computing(add, "maximum tokens in a batch, as for predict (default: 1024 on the CPU)")
    return parser
