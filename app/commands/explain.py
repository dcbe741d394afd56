"""Say which characters of a text made a trained model choose its label, and whether that is an explanation.

python -m app explain checkpoints/sample-001 今天真开心，下班去吃火锅
python -m app explain checkpoints/sample-001 今天真开心，下班去吃火锅 --label 悲伤
python -m app explain checkpoints/pairs-001 怎么退款 --text_pair 钱能退吗
python -m app explain checkpoints/sample-001 "$(cat letter.txt)" --html why.html

Integrated gradients (captum) of the log-odds of the label, for each character. They must pass a test:
deleting the characters they favour must lower the log-odds more than deleting at random does. Where they do
not, it says that this is no explanation. It speaks the language of LANG. Exit status: 0, also then; 1 for a
model that gives no numbers, 2 for bad input.
"""

from pathlib import Path

from ..errors import InputError
from ..runtime.disk import check_new, write_text
from . import say
from .parser import DEVICES, Parser


def run(argv: list[str], program: str) -> None:
    """Print the explanation and write its page. Raises InputError for bad input, and TrainingError for a
    model that gives no numbers."""
    add = (parser := Parser(program, __doc__)).add_argument
    model = "a run, or any transformers checkpoint for sequence classification"
    add("model", type=Path, metavar="RUN", help=model)
    add("text", metavar="TEXT", help="the text")
    add("--text_pair", metavar="TEXT", help="the second text of a pair (default: none)")
    add("--label", metavar="LABEL", help="the label to explain (default: each predicted one)")
    add("--html", type=Path, metavar="FILE", help="new page to write (default: none)")
    add("--device", default="auto", help=DEVICES)
    args = parser.parse_args(argv)
    if args.html is not None:
        check_new(args.html, "--html")
    from ..explanation.explanation import ExplainedModel, explain, render_page, render_text
    from ..prediction.model_folder import check_pairs, run_settings

    settings = run_settings(args.model)
    check_pairs(args.model, settings, args.text_pair is not None, "a pair is a text and --text_pair")
    texts = (args.text,) if args.text_pair is None else (args.text, args.text_pair)
    model = ExplainedModel(args.model, args.device)
    explanations = explain(model, texts, bool(settings.get("remove_spaces")), args.label)
    print("\n\n".join(map(render_text, explanations)))
    if args.html is not None:
        try:
            write_text(args.html, render_page(explanations))
        except OSError as error:
            raise InputError(f"--html {args.html}: cannot be written: {error.strerror}") from error
        say(f"Saved in {args.html}")
