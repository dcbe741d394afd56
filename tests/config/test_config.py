"""YAML files and the command line -> configuration: python -m pytest tests/config/test_config.py"""

import re
import sys

import pytest
import yaml

from app.config import shipped
from app.config.command_line import load_config
from app.config.help import USUAL, explanation, help_text, markdown
from app.config.schema import SETTINGS, Config
from app.config.shipped import DEFAULT_CONFIG, DEFAULT_CONFIGS, RANDOM_CONFIG
from app.errors import InputError
from tests.processes import ROOT, finish


@pytest.fixture
def load(write):
    """Load the configuration of YAML text and of overrides: load("train: {epochs: 3}", "--train.seed", "1")."""

    def load_text(text: str, *overrides: str) -> Config:
        return load_config(["--config", str(write("a.yaml", text)), *overrides])

    return load_text


@pytest.fixture
def refusal(load):
    """The message of the InputError that YAML text and overrides give."""

    def message(text: str, *overrides: str) -> str:
        with pytest.raises(InputError) as error:
            load(text, *overrides)
        return str(error.value)

    return message


@pytest.fixture
def e5_is_installed(monkeypatch, tmp_path):
    """Set whether the data file of e5-small-zh is there."""

    def set_installed(is_installed: bool) -> None:
        monkeypatch.setattr(shipped, "e5_file", lambda: tmp_path / "file" if is_installed else None)

    return set_installed


def test_without_arguments_the_default_file_is_read(e5_is_installed):
    """Where the package of the encoder is missing, that of random weights."""
    e5_is_installed(True)
    config = load_config([])
    assert (config.model.name, config.model.config, config.train.epochs) == ("e5-small-zh", {}, "auto")
    assert config.output.name == "sample"
    assert load_config(["--data.train", "数据/评论.csv"]).output.name == "评论"
    e5_is_installed(False)
    config, written = load_config([]), yaml.safe_load(RANDOM_CONFIG.read_text(encoding="utf-8"))
    assert (config.model.name, config.model.config) == (None, written["model"]["config"])
    assert (config.train.epochs, config.output.name) == (written["train"]["epochs"], "sample")


@pytest.mark.parametrize(
    ("model", "options", "base"),
    [
        ("", [], DEFAULT_CONFIG),
        ("model: {dropout: 0.2}\n", [], DEFAULT_CONFIG),
        ("", ["--model.architecture", "modernbert"], RANDOM_CONFIG),
        ("model: {vocab_file: vocab.txt}\n", [], None),
        ("model: {name: hfl/rbt3}\n", [], None),
    ],
)
def test_a_file_that_names_no_model_is_read_on_top_of_the_defaults(
    e5_is_installed, tmp_path, model, options, base
):
    """Else `data: {train: reviews.csv}` would train a BERT of base size with random weights."""
    e5_is_installed(True)
    path = tmp_path / "reviews.yaml"
    path.write_text(f"{model}train: {{batch_size: 16}}\n", encoding="utf-8")
    config = load_config(["--config", str(path), *options])
    assert (config.train.batch_size, config.output.name) == (16, "reviews")
    expected = yaml.safe_load(base.read_text(encoding="utf-8")) if base else {}
    assert config.model.config == expected.get("model", {}).get("config", {})
    assert config.train.precision == expected.get("train", {}).get("precision", "fp32")
    if not model:
        assert config.model.name == expected["model"].get("name")


@pytest.mark.parametrize("is_installed", [True, False])
def test_sizes_of_the_random_model_do_not_apply_to_a_named_one(e5_is_installed, is_installed):
    e5_is_installed(is_installed)
    config = load_config(["--model.name", "hfl/chinese-macbert-base"])
    assert config.model.config == {}
    rates = config.train.learning_rate, config.train.head_learning_rate
    assert (config.train.epochs, *rates) == ("auto", None, None)


@pytest.mark.parametrize(
    "setting", ["--model.config.hidden_size=32", "--model.architecture=electra", "--model.vocab_file=v.txt"]
)
def test_a_setting_for_random_weights_trains_these(e5_is_installed, setting):
    e5_is_installed(True)
    config = load_config([setting])
    assert (config.model.name, config.train.epochs) == (None, 12)


def test_a_file_changes_what_it_names_and_nothing_else(load):
    config = load(
        "model:\n  name:\ntrain:\n  epochs: 7\n  learning_rate: 3e-4\ndata:\n  labels: [好, 😀]\n  header: no\n"
    )
    assert (config.train.epochs, config.train.learning_rate) == (7, 3e-4)
    assert (config.data.labels, config.data.header) == (["好", "😀"], False)
    assert config.output.name == "a"
    defaults = Config().to_dict()
    defaults["train"] |= {"epochs": 7, "learning_rate": 3e-4}
    defaults["data"] |= {"labels": ["好", "😀"], "header": False}
    defaults["output"]["name"] = "a"
    assert config.to_dict() == defaults


def test_what_is_written_is_read_back(load):
    config = load(
        "data: {train: 评论.csv, text_column: 0, label_column: 标签}\ntrain: {class_weights: [1.0, 2]}\n"
    )
    assert load(yaml.safe_dump(config.to_dict(), allow_unicode=True)) == config


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("train.epochs", "7", 7),
        ("train.learning_rate", "3e-4", 3e-4),
        ("train.learning_rate", "1", 1.0),
        ("train.class_weights", "[0.5, 2]", [0.5, 2.0]),
        ("train.class_weights", "balanced", "balanced"),
        ("data.text_column", "1", 1),
        ("data.text_column", "-1", -1),
        ("data.text_column", "文本", "文本"),
        ("data.text_column", "no", "no"),
        ("data.header", "false", False),
        ("data.header", "null", None),
        ("data.limit", "100", 100),
        ("data.labels", "[坏, 好, 😀]", ["坏", "好", "😀"]),
        ("data.labels", '["0", "1"]', ["0", "1"]),
        ("data.train", "123", "123"),
        ("data.train", "文件 [1]: {a}.csv", "文件 [1]: {a}.csv"),
        ("data.split_seed", "0", 0),
        ("data.dev_size", "300", 300.0),
        ("model.config", "{hidden_size: 64}", {"hidden_size": 64}),
    ],
)
def test_values_on_the_command_line(key, written, value):
    group, name = key.split(".")
    for argv in ([f"--{key}", written], [f"--{key}={written}"]):
        config = load_config([*argv, "--data.dev_size=300"] if key == "data.dev_size" else argv)
        found = getattr(getattr(config, group), name)
        assert found == value
        assert type(found) is type(value)


def test_overrides_win_over_files_wherever_they_stand(write):
    path = str(write("a.yaml", "train: {epochs: 3, batch_size: 4}"))
    for argv in (["--config", path, "--train.epochs", "9"], ["--train.epochs=9", f"--config={path}"]):
        config = load_config(argv)
        assert (config.train.epochs, config.train.batch_size) == (9, 4)
    assert load_config(["--train.epochs", "1", "--train.epochs", "2"]).train.epochs == 2


@pytest.mark.parametrize("spelling", [("--config", "{}"), ("--config={}",)])
def test_later_files_win_over_earlier_ones(write, spelling):
    first = write(
        "a.yaml", "train: {epochs: 3, batch_size: 4}\nmodel: {config: {hidden_size: 8, num_hidden_layers: 1}}"
    )
    second = write("b.yaml", "train: {epochs: 5}\nmodel: {config: {hidden_size: 16}}")
    config = load_config(["--config", str(first), *(word.format(second) for word in spelling)])
    assert (config.train.epochs, config.train.batch_size, config.output.name) == (5, 4, "b")
    assert config.model.config == {"hidden_size": 16}
    config = load_config([*(word.format(second) for word in spelling), "--config", str(first)])
    assert (config.train.epochs, config.output.name) == (3, "a")


def test_one_key_of_the_model_configuration_and_the_name_of_a_run_can_be_overridden(load):
    sizes = "model: {config: {hidden_size: 8, num_hidden_layers: 1}}"
    config = load(f"{sizes}\noutput: {{name: 实验}}", "--model.config.hidden_size", "16")
    assert config.model.config == {"hidden_size": 16, "num_hidden_layers": 1}
    assert config.output.name == "实验"
    assert load("output: {name: 实验}", "--output.name", "😀").output.name == "😀"


MISTAKES = {
    "unknown key": ("train: {epoch: 3}", "there is no setting 'train.epoch'; did you mean 'train.epochs'?"),
    "unknown group": ("trian: {epochs: 3}", "there is no setting 'trian'; did you mean 'train'?"),
    "unknown key like no other": ("train: {xyz: 3}", "there is no setting 'train.xyz' (known: train.epochs, "),
    "key without its group": ("epochs: 3", "there is no setting 'epochs'; did you mean 'train.epochs'?"),
    "key that is a number": ("1: 3", "there is no setting '1'"),
    "group that is a value": ("train: 3", "train must be a mapping of keys to values, found 3"),
    "group without keys": ("train:\n", "train must be a mapping of keys to values, found nothing"),
    "list": ("- 3", "the file must be a mapping of keys to values, found [3]"),
    "no settings": ("# train: {epochs: 3}\n", "there are no settings in the file; write some, or leave --config out"),
    "key twice": ("train:\n  epochs: 3\ntrain:\n  seed: 1\n", ", line 3: 'train' is set twice; keep one of them"),
    "inner key twice": ("train:\n  epochs: 3\n  seed: 1\n  epochs: 4\n", ", line 4: 'epochs' is set twice"),
    "no YAML": ("train: [", "is not a readable YAML file", "line 1"),
    "key twice in other words": ("1: a\n'1': b\n", "line 2: '1' is set twice"),
    "key twice in a list": ("model: {config: {a: [{b: 1, b: 1}]}}", "line 1: 'b' is set twice"),
    "tag": ("a: !x 1\n", "is not a readable YAML file", "line 1"),
    "long number": (f"a: {'1' * 5000}\n", "is not a readable YAML file", "put strings in quotes"),
    "time zone": ("a: 2001-01-01 00:00:00 +99:99\n", "is not a readable YAML file: offset must be", "in quotes"),
    "list as a key": ("? [a]\n: 1\n", "is not a readable YAML file", "unhashable key", "line 1"),
    "equals sign": ("a: =\n", "is not a readable YAML file", "line 1"),
    "two documents": ("a: 1\n---\nb: 2\n", "is not a readable YAML file: expected a single document", "line 2"),
    "ten thousand levels": ("[" * 10_000, "is not a readable YAML file: too many levels"),
    "tab": ("train:\n\tepochs: 3\n", "is not a readable YAML file", "'\\t'", "in the file, line 2"),
    "word for an integer": ("train: {epochs: three}", "train.epochs must be auto or an integer from 1 to 1,000,000,000, found three"),
    "fraction for an integer": ("train: {epochs: 1.5}", "train.epochs must be auto or an integer from 1 to 1,000,000,000, found 1.5"),
    "truth for an integer": ("train: {epochs: true}", "train.epochs must be auto or an integer from 1 to 1,000,000,000, found True"),
    "nothing for an integer": ("train:\n  epochs:\n", "train.epochs must be auto or an integer from 1 to 1,000,000,000, found nothing; give it a value"),
    "word for a number": ("train: {weight_decay: some}", "train.weight_decay must be a finite number of at least 0, found some"),
    "number for a string": ("data: {train: 5}", "data.train must be a string (numbers, yes and no in quotes) or a list", "or null, found 5"),
    "integers for strings": ("data: {labels: [0, 1]}", "data.labels must be a list such as [a, b] of two or more different names without white space around them, none of them empty (numbers", "found [0, 1]"),
    "truth for strings": ("data: {labels: [yes, no]}", "yes and no in quotes", "found [True, False]"),
    "string for a list": ("data: {labels: 好}", "data.labels must be a list such as [a, b]", "found 好"),
    "unknown choice": ("train: {optimizer: adam}", "train.optimizer must be one of adamw, adamw_8bit, sgd, found adam; did you mean 'adamw'?"),
    "unknown choice beside a list": ("train: {class_weights: balance}", "one of none, balanced or a list of numbers", "mean 'balanced'?"),
    "list for a mapping": ("model: {config: [1]}", "model.config must be a mapping of keys to values, found [1]"),
    "too small": ("train: {epochs: 0}", "train.epochs must be auto or an integer from 1 to 1,000,000,000, found 0"),
    "negative": ("train: {learning_rate: -1e-3}", "train.learning_rate must be a finite number of at least 0 or null, found -1e-3"),
    "infinite": ("train: {learning_rate: .inf}", "train.learning_rate must be a finite number of at least 0 or null, found inf"),
    "no number": ("train: {warmup: .nan}", "train.warmup must be a finite number of at least 0 or null, found nan"),
    "rows without end": ("data: {test_size: 1.0e+20}", "a whole number of rows up to 1,000,000,000,000, found 1e+20"),
    "share of rows": ("data: {dev_size: 1.5}", "data.dev_size must be 0, a fraction below 1 or a whole number of rows up to 1,000,000,000,000, found 1.5"),
    "infinite share": ("data: {test_size: .inf}", "data.test_size must be 0, a fraction below 1 or a whole number of rows", "found inf"),
    "seed": ("data: {split_seed: -1}", "data.split_seed must be an integer from 0", "found -1"),
    "large seed": ("train: {seed: 99999999999999999999}", "train.seed must be an integer from 0"),
    "length": ("data: {max_length: 3}", "data.max_length must be an integer from 4 to 1,000,000, found 3"),
    "large length": ("data: {max_length: 100000000000000000000}", "data.max_length must be an integer from 4 to 1,000,000, found 1000"),
    "threads": ("train: {threads: 100000000000}", "train.threads must be an integer from 1 to 4,096 or null, found 100000000000"),
    "epochs": ("train: {epochs: 10000000000000000}", "train.epochs must be auto or an integer from 1 to 1,000,000,000, found 10000000000000000"),
    "timeout": ("train: {timeout: 9}", "train.timeout must be an integer from 10 (seconds), or ranks that are only slow", "found 9"),
    "NUL": ('data: {train: "a\\0b"}', "data.train must be without NUL characters", "found a\\x00b"),
    "label twice": ("data: {labels: [好, 坏, 好]}", "two or more different names", "found ['好', '坏', '好']"),
    "one label": ("data: {labels: [好]}", "two or more different names", "or null, found ['好']"),
    "space in a label": ("data: {labels: ['好 ', 坏]}", "without white space around them", "or null, found ['好 ', '坏']"),
    "empty label": ("data: {labels: ['', 坏]}", "none of them empty", "or null, found ['', '坏']"),
    "dropout": ("model: {dropout: 1.0}", "model.dropout must be a finite number from 0 to below 1 or null, found 1.0"),
}  # fmt: skip


def test_large_values_that_some_users_need(load):
    train = {"epochs": 10**9, "threads": 4096, "timeout": 10**9, "batch_size": 10**12, "eval_every": 10**12}
    assert load(yaml.safe_dump({"train": train, "data": {"max_length": 10**6}})).data.max_length == 10**6


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{a: 1, b: [x, 2.5, true, null]}", {"a": 1, "b": ["x", 2.5, True, None]}),
        ("{a: &name 1, b: *name}", {"a": 1, "b": 1}),
        ("{a: &x {y: 1}, b: {<<: *x, z: 2}}", {"a": {"y": 1}, "b": {"y": 1, "z": 2}}),
        ("{a: '<<', '<<': {b: 1}}", {"a": "<<", "<<": {"b": 1}}),
        (f"{{a: '{'1' * 5000}'}}", {"a": "1" * 5000}),
        ("{a: [{b: 1}, {b: 1}]}", {"a": [{"b": 1}, {"b": 1}]}),
    ],
)
def test_plain_values_of_a_file(load, text, values):
    """tests/model/test_strangers.py has the files that would run code."""
    assert load(f"\ufeffmodel: {{config: {text}}}\n").model.config == values


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_in_a_file(refusal, tmp_path, mistake):
    text, *parts = mistake
    message = refusal(text)
    assert message.startswith(str(tmp_path / "a.yaml"))
    assert all(part in message for part in parts), message
    assert not re.search("class '|Union|Parser key|typing|None", message)


def test_the_file_and_line_of_the_mistake_are_named(write):
    good = write("good.yaml", "train: {seed: 3}")
    bad = write("bad.yaml", "data:\n  limit: 9\ntrain:\n  epochs: 0\n")
    with pytest.raises(InputError, match=f"^{bad}, line 4: train.epochs must be auto or an integer from 1 "):
        load_config(["--config", str(bad), "--config", str(good), "--train.seed", "4"])


def test_a_value_that_a_later_layer_replaces_is_not_checked(load):
    assert load("train: {epochs: 0}", "--train.epochs", "4").train.epochs == 4


def test_a_file_in_another_encoding(write):
    with pytest.raises(InputError, match="gb.yaml is not a readable YAML file: 'utf-8' codec can't decode"):
        load_config(["--config", str(write("gb.yaml", "data: {labels: [好, 坏]}".encode("gb18030")))])
    config = load_config(["--config", str(write("配置😀.yaml", "\ufeffdata: {labels: [好, 坏]}"))])
    assert (config.data.labels, config.output.name) == (["好", "坏"], "配置😀")


ARGUMENTS = {
    "unknown setting": (["--train.epoch", "3"], "there is no setting 'train.epoch'; did you mean 'train.epochs'?"),
    "beginning of a setting": (["--data.tr=x"], "there is no setting 'data.tr'; did you mean 'data.train'?"),
    "unknown group": (["--trian.epochs", "3"], "there is no setting 'trian.epochs'; did you mean 'train.epochs'?"),
    "setting without its group": (["--epochs", "3"], "there is no setting 'epochs'; did you mean 'train.epochs'?"),
    "mistyped and without its group": (["--lerning_rate", "1"], "there is no setting 'lerning_rate'", "--help all lists them"),
    "group": (["--model", "hfl/x"], "model is a group of settings, not a setting; did you mean 'model.name'?"),
    "group of a mode": (["--deepspeed={}"], "deepspeed is a group of settings, not a setting (--help all lists them)"),
    "wrong type": (["--train.epochs", "x"], "train.epochs must be auto or an integer from 1 to 1,000,000,000, found x"),
    "no value": (["--train.epochs"], "--train.epochs needs a value after it"),
    "empty value": (["--train.epochs", ""], "train.epochs must be auto or an integer from 1 to 1,000,000,000, found nothing"),
    "NUL in a list": (["--data.labels", '["a", "b\\0"]'], "data.labels must be without NUL characters", "b\\x00"),
    "dev without train": (["--data.dev", "x.csv"], "data.dev must be given together with data.train, found x.csv"),
    "stray word": (["train.csv"], "unrecognized argument: train.csv", "--data.train FILE"),
    "config without a file": (["--config"], "--config needs a value after it"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "parts"), [(argv, parts) for argv, *parts in ARGUMENTS.values()], ids=ARGUMENTS.keys()
)
def test_a_mistake_on_the_command_line(argv, parts):
    with pytest.raises(InputError) as error:
        load_config(argv)
    assert str(error.value).startswith("command line: ")
    assert all(part in str(error.value) for part in parts), error.value


@pytest.mark.parametrize(
    ("name", "message"), [("nope.yaml", ".*nope.yaml is not there"), ("", ".* is a directory")]
)
def test_a_configuration_file_that_is_none(tmp_path, name, message):
    with pytest.raises(InputError, match=f"a YAML file is needed; {message}"):
        load_config(["--config", str(tmp_path / name)])


def test_there_are_few_settings_and_a_document_lists_them():
    """CONTRIBUTING.md says what a new one must show."""
    assert len(SETTINGS) <= 70
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == markdown(), (
        "python -m app.config.help > docs/settings.md"
    )


def help_of(*topics):
    commands = "python run_single.py   one line\npython run_single.py   another"
    return help_text("run_single.py", commands, list(topics), load_config([]))


def test_every_setting_is_in_the_help_of_all_once_and_explained():
    text = help_of("all")
    assert re.findall(r"^  --([\w.]+)", text, re.MULTILINE) == list(SETTINGS)
    letters = "".join(text.split())
    assert [name for name in SETTINGS if "".join(explanation(name).split()) not in letters] == []


def test_the_usual_help_fits_on_a_screen_and_has_the_defaults_of_the_plain_command():
    text = help_of()
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 110
    assert "   one line\npython run_single.py   another" in text
    assert set(USUAL) <= set(SETTINGS)
    defaults = {"model.name": "e5-small-zh", "train.precision": "auto", "train.epochs": "auto"}
    for name, default in defaults.items():
        assert re.search(rf"^  --{name} .*\(default: {default}\)$", text, re.MULTILINE)


def test_help_of_a_group_of_one_setting_and_of_none():
    assert re.findall(r"^  --(\w+)", help_of("deepspeed"), re.MULTILINE) == ["deepspeed"] * 2
    assert "  --train.epochs auto|EPOCHS (default: auto)\n      Passes over" in help_of("train.epochs")
    with pytest.raises(InputError, match="there is no help on 'trian'; did you mean 'train'?"):
        help_of("trian")


def test_help_is_quick():
    """It imports nothing that takes seconds to import."""
    scripts = sorted(path.name for path in ROOT.glob("run_*.py"))
    code = (
        "import runpy, sys\nfrom contextlib import suppress\nfor script in sys.argv[1:]:\n"
        "    sys.argv = [script, '--help']\n    with suppress(SystemExit):\n"
        "        runpy.run_path(script, run_name='__main__')\n    print(end='\\f')\nprint(*sys.modules)"
    )
    command = [sys.executable, "-c", code, *scripts]
    run = finish(command)
    assert run.returncode == 0, run.stderr
    *helps, modules = run.stdout.split("\f")
    assert all(f"python {script}" in text for script, text in zip(scripts, helps, strict=True))
    assert "app.errors" in modules.split()
    assert not {"torch", "transformers", "numpy", "pyarrow", "accelerate", "deepspeed"} & {*modules.split()}


def test_a_mistake_on_the_command_line_is_told_without_torch():
    code = (
        "import sys\nfrom app.run import main\nstatus = main('single', 'words', ['--train.epoch', '3'])\n"
        "print('torch' in sys.modules)\nsys.exit(status)"
    )
    run = finish([sys.executable, "-c", code])
    assert (run.returncode, run.stdout.strip()) == (2, "False")
    assert run.stderr.startswith("error: command line: there is no setting 'train.epoch'")


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_file_in_configs_is_right(path):
    name = "sample" if path in DEFAULT_CONFIGS else path.stem
    assert load_config(["--config", str(path)]).output.name == name
