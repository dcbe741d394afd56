"""YAML files and the command line -> configuration."""

import re
from dataclasses import replace

import pytest
import yaml

from app.checkpoints.run_history import read_settings
from app.config.allowed_values import describe, literal_values
from app.config.command_line import load_config, load_data_settings
from app.config.help import MEANING_OF_NONE, USUAL, explanation, help_text, markdown
from app.config.other_names import OTHER_NAMES
from app.config.schema import SETTINGS, Config, ModelConfig, OutputConfig, TrainConfig
from app.errors import InputError
from tests.processes import ROOT


@pytest.fixture
def load(write):
    """Load the configuration of YAML text and of overrides: load("train: {epochs: 3}", "--train.seed", "1")."""

    def load_text(text: str, *overrides: str) -> Config:
        return load_config(["--config", str(write("a.yaml", text)), *overrides])

    return load_text


def test_what_nothing_sets_has_the_default_of_the_schema():
    config = load_config([])
    assert (config.model.name, config.train.precision, config.output.name) == (
        "e5-small-zh",
        "auto",
        "sample",
    )
    assert config.to_dict() == Config(output=OutputConfig(name="sample")).to_dict()
    assert load_config(["--data.train", "数据/评论.csv"]).output.name == "评论"


SETTINGS_OF_A_MODEL = [
    ("name", "hfl/chinese-macbert-base"),
    ("name", "random"),
    ("config", {"hidden_dropout_prob": 0.2}),
    ("dropout", 0.2),
]


@pytest.mark.parametrize(("key", "value"), SETTINGS_OF_A_MODEL)
def test_a_setting_of_the_model_changes_nothing_else_in_a_file_or_on_the_command_line(load, key, value):
    """--model.config once replaced the pretrained default by random weights, and a name in a file auto by
    fp32."""
    model = replace(Config().model, **{key: value})
    wanted = Config(model=model, output=OutputConfig(name="a")).to_dict()
    assert load(yaml.safe_dump({"model": {key: value}})).to_dict() == wanted
    words = [f"--model.{key}={value}"]
    assert load_config([*words, "--output.name=a"]).to_dict() == wanted


def test_one_key_of_the_models_configuration_leaves_the_default_model():
    config = load_config(["--model.config.hidden_dropout_prob", "0.2"])
    assert config.model == ModelConfig(config={"hidden_dropout_prob": 0.2})
    assert config.train == TrainConfig()


@pytest.mark.parametrize("written", ["name:", "name: null", "name: ~", "name: none"])
def test_null_as_a_name_is_refused_and_the_error_names_random(load, tmp_path, written):
    """As the files of earlier versions have it, and the config.yaml of their runs."""
    rule = r"model\.name must be e5-small-zh, .*, or random \(for random weights\), found "
    with pytest.raises(InputError, match=rf"^{tmp_path}/a\.yaml, line 2: {rule}"):
        load(f"model:\n  {written}\n")


def test_a_configuration_knows_which_settings_are_given_also_with_their_defaults(load):
    config = load("data: {task: single_label}", "--train.epochs=2")
    assert config.given == {"data.task", "train.epochs"}


RANDOM_FILE = "model: {name: random, vocab_file: vocab.txt, architecture: ernie}"


def test_settings_of_random_weights_are_left_out_with_a_line_where_a_later_layer_names_a_model(
    load, tmp_path
):
    config = load(RANDOM_FILE, "--model.name", "hfl/rbt3")
    assert config.model == ModelConfig("hfl/rbt3")
    assert config.notes == tuple(
        f"{key} ({tmp_path}/a.yaml, line 1) is not used: it is for random weights, and model.name is hfl/rbt3."
        for key in ("model.architecture ernie", "model.vocab_file vocab.txt")
    )
    assert load(RANDOM_FILE).notes == load(RANDOM_FILE, "--model.name=random").notes == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: {vocab_file: vocab.txt}", []),
        ("model: {name: hfl/rbt3, architecture: ernie}", []),
        ("model: {name: hfl/rbt3}", ["--model.vocab_file=vocab.txt"]),
        (RANDOM_FILE, ["--model.name=hfl/rbt3", "--model.architecture=electra"]),
    ],
)
def test_settings_of_random_weights_need_the_name_random(load, text, words):
    rule = "must be left out unless model.name is random .*--model.name random"
    with pytest.raises(InputError, match=rf"model\.(vocab_file|architecture) {rule}"):
        load(text, *words)


def test_a_file_changes_what_it_names_and_is_written_and_read_back(load):
    text = (
        "model:\n  name: random\ntrain:\n  epochs: 7\n  learning_rate: 3e-4\n  class_weights: [1.0, 2]\n"
        "data:\n  labels: [好, 😀]\n  header: no\n  text_column: 0\n"
    )
    config = load(text)
    defaults = Config().to_dict()
    defaults["model"]["name"] = "random"
    defaults["train"] |= {"epochs": 7, "learning_rate": 3e-4, "class_weights": [1.0, 2.0]}
    defaults["data"] |= {"labels": ["好", "😀"], "header": False, "text_column": 0}
    defaults["output"]["name"] = "a"
    assert config.to_dict() == defaults
    assert load(yaml.safe_dump(config.to_dict(), allow_unicode=True)) == config


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("train.learning_rate", "3e-4", 3e-4),
        ("train.class_weights", "[0.5, 2]", [0.5, 2.0]),
        ("data.text_column", "-1", -1),
        ("data.text_column", "文本", "文本"),
        ("data.header", "false", False),
        ("data.labels", '["0", "1"]', ["0", "1"]),
        ("data.train", "123", "123"),
        ("data.train", "文件 [1]: {a}.csv", "文件 [1]: {a}.csv"),
        ("data.dev_size", "300", 300.0),
        ("model.config", "{hidden_size: 64}", {"hidden_size": 64}),
    ],
)
def test_values_on_the_command_line(key, written, value):
    group, name = key.split(".")
    for argv in ([f"--{key}", written], [f"--{key}={written}"]):
        loaded = getattr(getattr(load_config(argv), group), name)
        assert loaded == value
        assert type(loaded) is type(value)


def test_options_win_over_files_and_later_files_over_earlier_ones(write):
    sizes = "model: {config: {hidden_size: 8, num_hidden_layers: 1}}"
    first = ["--config", str(write("a.yaml", f"train: {{epochs: 3, batch_size: 4}}\n{sizes}"))]
    text = "train: {epochs: 5}\nmodel: {config: {hidden_size: 16}}\noutput: {name: 实验}"
    second = [f"--config={write('b.yaml', text)}"]
    for argv, expected in (
        ([*first, "--train.epochs", "9"], (9, 4, "a")),
        (["--train.epochs=1", "--train.epochs=9", *first], (9, 4, "a")),
        ([*first, *second], (5, 4, "实验")),
        ([*second, *first, "--output.name", "😀"], (3, 4, "😀")),
    ):
        config = load_config(argv)
        assert (config.train.epochs, config.train.batch_size, config.output.name) == expected
    assert load_config([*first, *second]).model.config == {"hidden_size": 16}
    sizes = load_config([*first, "--model.config.hidden_size", "16"]).model.config
    assert sizes == {"hidden_size": 16, "num_hidden_layers": 1}
    # What a later layer replaces is not checked
    wrong = str(write("wrong.yaml", "train: {epochs: 0}"))
    assert load_config(["--config", wrong, "--train.epochs", "4"]).train.epochs == 4


def value_of(config: Config, name: str):
    group, _dot, key = name.partition(".")
    return getattr(getattr(config, group), key)


@pytest.mark.parametrize("name", SETTINGS)
def test_none_unsets_a_setting_that_may_be_none_and_is_no_other_value(load, name):
    """On the command line and in YAML, in any case; the help says what none means, and no other choice has
    this name."""
    group, _dot, key = name.partition(".")
    assert "none" not in map(str, literal_values(SETTINGS[name]))
    may_be_none = value_of(Config(), name) is None
    assert bool(MEANING_OF_NONE.search(explanation(name))) == may_be_none
    assert ("none" in describe(SETTINGS[name]).split(" or ")) == may_be_none
    assert re.search(rf"\| `{name}` \|.*\(default: none\) \|", markdown()) is not None or not may_be_none
    written = [f"{group}:\n  {key}: {word}\n" for word in ("none", "None", "null", "~", '"none"')]
    words = ([f"--{name}", "none"], [f"--{name}=NONE"], [f"--{name}=null"])
    if may_be_none:
        unset_configs = [load(text) for text in written]
        unset_configs += [load("# nothing\ntrain: {}\n", *option) for option in words]
        values = {value_of(config, name) for config in unset_configs}
        assert values == {None if name != "output.name" else "a"}
        return
    for text in written:
        with pytest.raises(
            InputError, match=rf"a.yaml, line 2: {name} must be .*, found nothing; give it a v"
        ):
            load(text)
    for option in words[:2]:
        with pytest.raises(
            InputError, match=rf"^command line: {name} must be .*, found nothing; give it a v"
        ):
            load_config(option)


def test_none_of_the_command_line_unsets_what_a_file_sets_and_a_label_may_be_called_none(load):
    text = "train: {learning_rate: 0.1}\ndata: {labels: [favor, none]}\nmodel: {config: {a: none, b: [none]}}"
    config = load(text, "--train.learning_rate", "none", "--model.config.c", "none")
    assert config.train.learning_rate is None
    assert config.data.labels == ["favor", "none"]
    # transformers has such a value: norm_rel_ebd of DeBERTa
    assert config.model.config == {"a": "none", "b": ["none"], "c": "none"}
    assert load(text, "--data.labels", "[none, against]").data.labels == ["none", "against"]


@pytest.mark.parametrize("words", [["--model.prefix="], ["--model.prefix", ""], ["model.prefix="]])
def test_an_empty_prefix_is_no_words(load, words):
    """It is not the same as none, by which e5 has its own."""
    assert load_config(words).model.prefix == ""
    assert load("model: {prefix: 'query: '}", *words).model.prefix == ""
    assert load("model: {prefix: ''}").model.prefix == ""


def test_the_names_of_earlier_versions_in_the_files_of_their_runs_are_read(write):
    text = "data:\n  quoting: none\n  train: a.csv\n  of_another_version: 1\ntrain:\n  class_weights: none\n"
    path = write("config.yaml", text)
    assert load_data_settings(path).quoting == "never"
    assert read_settings(path.parent) == {
        "data.quoting": "never",
        "data.train": "a.csv",
        "data.of_another_version": 1,
        "train.class_weights": None,
    }


@pytest.mark.parametrize(
    ("words", "resume", "epochs"),
    [
        (["--resume"], "auto", "auto"),
        (["--resume", "--train.epochs", "3"], "auto", 3),
        (["--train.epochs", "3", "--resume"], "auto", 3),
        (["--resume", "train.epochs=3"], "auto", 3),
        (["--output.resume", "--train.epochs=3"], "auto", 3),
        (["--resume", "never"], "never", "auto"),
        (["--resume=auto"], "auto", "auto"),
    ],
)
def test_resume_alone_is_auto(words, resume, epochs):
    config = load_config(words)
    assert (config.output.resume, config.train.epochs) == (resume, epochs)


def test_names_of_other_trainers_lead_to_the_setting():
    for name, setting in OTHER_NAMES.items():
        assert setting.split()[0] in SETTINGS
        if " " in setting:
            load_config(f"--{setting}".split())
        for written in (name, name.replace("_", "-")):
            with pytest.raises(InputError, match=rf"no setting '{written}'; did you mean '{setting}'\?"):
                load_config([f"--{written}", "1"])
    usual = {
        "lr": "train.learning_rate",
        "model": "model.name",
        "epochs": "train.epochs",
        "batch_size": "train.batch_size",
        "output_dir": "output.dir",
        "learning_rate": "train.learning_rate",
        "num_train_epochs": "train.epochs",
        "model_name_or_path": "model.name",
        "per_device_train_batch_size": "train.batch_size",
        "seed": "train.seed",
        "max_length": "data.max_length",
    }
    for name, setting in usual.items():
        with pytest.raises(InputError, match=rf"no setting '{name}'; did you mean '{setting}'\?"):
            load_config([f"--{name}", "1"])


def test_trackers_are_those_of_accelerate():
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    assert set(literal_values(SETTINGS["output.trackers"])) >= set(LOGGER_TYPE_TO_CLASS)


NUMBER = "train.epochs must be auto or an integer from 1 to 1,000,000,000, found "
LEVELS = "data.label_hierarchy must be what is between the levels of a label, such as - or /, and not data."
SEVERAL = ["--data.task=multi_label", "--data.train=x", "--data.label_columns=[a, b]"]
# The text of a file, or a command line, and what is said of it
MISTAKES = [
    ("train: {epoch: 3}", "there is no setting 'train.epoch'; did you mean 'train.epochs'?"),
    ("data: {whole_words: true}", "there is no setting 'data.whole_words' (--help all lists them)"),
    ("trian: {epochs: 3}", "there is no setting 'trian'; did you mean 'train'?"),
    ("epochs: 3", "there is no setting 'epochs'; did you mean 'train.epochs'?"),
    ("train: 3", "train must be a mapping of keys to values, found 3"),
    ("# train: {epochs: 3}\n", "there are no settings in the file; write some, or leave --config out"),
    ("train:\n  seed: 1\ntrain:\n  seed: 1\n", ", line 3: 'train' is set twice; keep one of them"),
    ("model: {config: {a: [{b: 1, b: 1}]}}", "line 1: 'b' is set twice"),
    (f"a: {'1' * 5000}\n", "is not a readable YAML file", "strings in quotes"),
    ("[" * 1_000, "is not a readable YAML file", "recursion"),
    ("train:\n  epochs:\n", NUMBER + "nothing; give it a value"),
    ("train: {lr: 1e-4}", "there is no setting 'train.lr'; did you mean 'train.learning_rate'?"),
    (
        'data: {train: "C:\\new.csv"}',
        "found C:\\new.csv: in double quotes, YAML reads \\n",
        "use single quotes",
    ),
    ('data: {train: "C:\\data.csv"}', "is not a readable YAML file", "a backslash in single quotes"),
    ("data: {quoting: none}", "found nothing; give it a value (what was called none is called never now)"),
    (
        "train: {learning_rate: 0}",
        "train.learning_rate must be greater than 0, or nothing is learnt",
        "found 0",
    ),
    ("output: {trackers: [tensorbord]}", "found ['tensorbord']; did you mean 'tensorboard'?"),
    ("output: {trackers: none}", "([]: none of them), found nothing;", "its default, [tensorboard]"),
    ("data: {train: 5}", "data.train must be a string (numbers, yes and no in quotes) or a list", "found 5"),
    ("data: {labels: [0, 1]}", "must be a list such as [a, b] of two or more different", "found [0, 1]"),
    ("data: {labels: ['好 ', 坏]}", "without white space around them", "found ['好 ', '坏']"),
    ("train: {optimizer: adam}", "must be one of adamw, sgd, found adam; did you mean 'adamw'?"),
    ("train: {class_weights: balance}", "must be balanced or a list of numbers or none", "mean 'balanced'?"),
    ("train: {learning_rate: -1e-3}", "must be a finite number greater than 0 (0 only with", "found -1e-3"),
    ("train: {learning_rate: .inf}", "must be a finite number greater than 0 (0 only with", "found inf"),
    ("train: {warmup: .nan}", "train.warmup must be a finite number of at least 0 or none, found nan"),
    ("data: {dev_size: 1.5}", "must be 0, a fraction below 1 or a whole number of rows", "found 1.5"),
    ("train: {timeout: 9}", "train.timeout must be an integer from 10 (seconds), or ranks that", "found 9"),
    (["--data.tr=x"], "there is no setting 'data.tr'; did you mean 'data.train'?"),
    (["--lerning_rate", "1"], "no setting 'lerning_rate'; did you mean 'train.learning_rate'? (--help all"),
    (["--deepspeed={}"], "no setting 'deepspeed'; did you mean 'deepspeed.stage'?"),
    (["--train.epochs", "x"], NUMBER + "x"),
    (["--train.epochs"], "--train.epochs needs a value after it: auto or an integer from 1"),
    (["--train.epochs", "none"], NUMBER + "nothing; give it a value, or leave it out for its default, auto"),
    (["--config"], "--config needs a value after it: a YAML file"),
    (["--fp16"], "there is no setting 'fp16'; did you mean 'train.precision fp16'?"),
    (["--resume", "checkpoints/a"], "output.resume must be one of never, auto, found checkpoints/a"),
    (["--data.train", ""], "--data.train needs a value after it"),
    (["--data.dev", "x.csv"], "data.dev must be given together with data.train, found x.csv"),
    (["train.csv"], "unrecognized argument: train.csv", "--data.train FILE"),
    (["--data.label_separator= "], "data.label_separator must be left out unless data.task is multi_label"),
    (["--data.task=multi_label"], "data.train must be a file with data.task multi_label"),
    ([*SEVERAL, "--data.label_column=a"], "data.label_column must be left out with data.label_columns"),
    (["--data.label_hierarchy=-"], "left out unless data.task is single_path or multi_path, found -"),
    (["--data.task=single_path", "--data.train=x"], LEVELS),
    (["--data.task=multi_path", "--data.label_hierarchy=-", "--data.label_separator=-"], LEVELS),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_file(load, tmp_path, mistake):
    settings, *parts = mistake
    with pytest.raises(InputError) as error:
        load(settings) if isinstance(settings, str) else load_config(settings)
    message = str(error.value)
    assert [part for part in parts if part not in message] == [], message
    assert not re.search("class '|Union|Parser key|typing|None", message)
    assert isinstance(settings, list) or message.startswith(str(tmp_path / "a.yaml"))


def test_the_file_and_line_of_the_mistake_are_named(write, tmp_path):
    good = write("good.yaml", "train: {seed: 3}")
    bad = write("bad.yaml", "data:\n  limit: 9\ntrain:\n  epochs: 0\n")
    with pytest.raises(InputError, match=f"^{bad}, line 4: train.epochs must be auto or an integer from 1 "):
        load_config(["--config", str(bad), "--config", str(good), "--train.seed", "4"])
    for name, message in (("nope.yaml", "nope.yaml is not there"), ("", " is no file")):
        with pytest.raises(InputError, match=f"a YAML file is needed; .*{message}"):
            load_config(["--config", str(tmp_path / name)])
    with pytest.raises(InputError, match="gb.yaml is not a readable YAML file: 'utf-8' codec can't decode"):
        load_config(["--config", str(write("gb.yaml", "data: {labels: [好, 坏]}".encode("gb18030")))])


def test_a_file_of_any_name_has_plain_values_and_anchors(write):
    """tests/model/test_pretrained.py has the files that would run code."""
    text = "\ufeffmodel: {config: {a: &x {y: 1, z: [x, 2.5, true, null]}, b: {<<: *x, w: 2}, c: '<<'}}\n"
    config = load_config(["--config", str(write("配置😀.yaml", text))])
    z = ["x", 2.5, True, None]
    assert config.model.config == {"a": {"y": 1, "z": z}, "b": {"y": 1, "z": z, "w": 2}, "c": "<<"}
    assert config.output.name == "配置😀"


def test_there_are_few_settings_and_a_document_lists_them():
    """CONTRIBUTING.md says what a new one must show."""
    assert len(SETTINGS) <= 71
    written = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert written == markdown(), "python -m app.config.help > docs/settings.md"


def help_of(is_whole: bool) -> str:
    commands = "python run_single.py   one line\npython run_single.py   another"
    return help_text("run_single.py", commands, is_whole, Config())


@pytest.mark.parametrize("words", [["--help"], ["--help", "all"]])
def test_the_help_and_the_document_have_the_same_defaults(words, capsys):
    with pytest.raises(SystemExit):
        load_config(words)
    in_document = dict(re.findall(r"^\| `([\w.]+)` \|.*\(default: (.+?)\) \|", markdown(), re.MULTILINE))
    in_help = dict(re.findall(r"^  --([\w.]+) .*\(default: (.+)\)$", capsys.readouterr().out, re.MULTILINE))
    assert in_help
    assert {name: in_document.get(name) for name in in_help} == in_help


def test_every_setting_is_in_the_help_of_all_once_and_explained():
    text = help_of(True)
    options = [*SETTINGS, "config", "print_config"]
    assert re.findall(r"^  --([\w.]+)", text, re.MULTILINE) == options
    epochs = "  --train.epochs  auto or an integer from 1 to 1,000,000,000 (default: auto)\n      Passes over"
    assert epochs in text
    letters = "".join(text.split())
    assert [name for name in SETTINGS if "".join(explanation(name).split()) not in letters] == []


def test_the_usual_help_fits_on_a_screen_and_has_the_defaults_of_the_plain_command():
    text = help_of(False)
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 110
    assert "   one line\npython run_single.py   another" in text
    assert set(USUAL) <= set(SETTINGS)
    for name in USUAL:
        choices = ",".join(map(str, literal_values(SETTINGS[name])))
        # A list of numbers may stand in place of "balanced", and a number of "auto"
        assert f"{{{choices}}}" in text or choices in ("", "auto", "balanced")
    for name, default in (("model.name", "e5-small-zh"), ("train.precision", "auto")):
        assert re.search(rf"^  --{name} .*\(default: {default}\)$", text, re.MULTILINE)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_file_in_configs_is_right(path):
    assert load_config(["--config", str(path)]).output.name == path.stem


def test_a_setting_that_is_gone_is_refused_with_the_reason_unless_it_is_unset(load, tmp_path):
    with pytest.raises(
        InputError, match=r"line 1: there is no setting 'train.r_drop' any more: R-Drop was rem"
    ):
        load("train: {r_drop: 1}")
    with pytest.raises(InputError, match="command line: there is no setting 'train.r_drop' any more"):
        load_config(["--train.r_drop", "1"])
    # The files of earlier runs have all settings
    assert load("train: {r_drop: null}").train == TrainConfig()
    (tmp_path / "config.yaml").write_text("train: {r_drop: null, seed: 1}")
    assert read_settings(tmp_path) == {"train.seed": 1}
