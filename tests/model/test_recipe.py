"""What is chosen by itself: the start of a head, learning rates, epochs."""

import logging
from dataclasses import replace

import pytest
from transformers import BertConfig

from app.checkpoints.resume import with_saved_choices
from app.checkpoints.run_history import write_start
from app.config.command_line import load_config
from app.config.schema import Config, DataConfig, ModelConfig, TrainConfig
from app.config.shipped import FEW_LABELS_CONFIG
from app.errors import InputError, counted
from app.model.checkpoint import checkpoint_place
from app.model.epochs import with_epochs
from app.model.head_choice import MAX_ROWS, started, with_head
from app.model.recipe import with_recipe

FEW = 2 * 8


@pytest.fixture(autouse=True)
def logged(caplog):
    caplog.set_level(logging.INFO)
    return caplog


@pytest.fixture
def of_width(tmp_path):
    """Write the configuration of a checkpoint of some width, and return settings that name its folder."""

    def write(width: int, train=None, **model) -> Config:
        BertConfig(hidden_size=width, num_attention_heads=2).save_pretrained(tmp_path / "checkpoint")
        # A checkpoint has a vocabulary
        (tmp_path / "checkpoint" / "vocab.txt").touch()
        model = ModelConfig(name=str(tmp_path / "checkpoint"), **model)
        return Config(DataConfig(cache_dir=str(tmp_path)), model, TrainConfig(**train or {}))

    return write


SINGLE = "single texts"
PAIRS = "pairs of texts"
LINEAR_HEAD = {"head": "linear"}
LORA = {"lora_rank": 8}


def recipe_of(config: Config, steps_per_epoch: int, has_pairs: bool) -> Config:
    """Return the settings with the recipe of their checkpoint, as a run gets it."""
    place = checkpoint_place(config.model, config.data.cache_dir)
    return with_recipe(config, place, steps_per_epoch, has_pairs)


@pytest.mark.parametrize(
    ("width", "steps", "texts", "settings", "rate", "head_rate", "warmup"),
    [
        (312, 60, SINGLE, {}, 2e-4, 2e-3, 0.3),
        (384, 150, SINGLE, {}, 2e-4, 2e-3, 0.3),
        (384, 151, SINGLE, {}, 1e-4, 1e-3, 0.1),
        (384, 1, PAIRS, {}, 5e-5, 5e-4, 0.1),
        (384, 150, SINGLE, LINEAR_HEAD, 5e-5, None, 0.3),
        (384, 151, SINGLE, LINEAR_HEAD, 5e-5, None, 0.1),
        (512, 60, SINGLE, {}, 5e-5, None, 0.1),
        (768, 1, PAIRS, {}, 3e-5, None, 0.1),
        (1024, 60, SINGLE, {}, 2e-5, None, 0.1),
        (384, 60, SINGLE, LORA, 6e-4, 2e-3, 0.3),
        (768, 60, SINGLE, LORA, 3e-4, None, 0.1),
    ],
)
def test_rates_follow_from_width_steps_and_rows(
    of_width, logged, width, steps, texts, settings, rate, head_rate, warmup
):
    train = recipe_of(of_width(width, **settings), steps, texts == PAIRS).train
    assert train.learning_rate == pytest.approx(rate)
    assert train.head_learning_rate == (head_rate and pytest.approx(head_rate))
    assert (train.warmup, train.schedule) == (warmup, "linear")
    (line,) = logged.messages
    assert line.startswith(f"Settings chosen for you: train.learning_rate {rate:g}, train.warmup {warmup:g}")
    assert (" with LoRA," in line) == (settings == LORA)
    assert line.endswith(f", {texts}, {counted(steps, 'step')} in an epoch)")


def test_settings_win_and_random_weights_have_the_usual_rates(of_width, logged, tmp_path):
    train = recipe_of(of_width(64, {"learning_rate": 1e-5}), 60, False).train
    assert (train.learning_rate, train.head_learning_rate) == (1e-5, pytest.approx(1e-4))
    train = recipe_of(of_width(64, {"head_learning_rate": 0.5, "warmup": 0}), 60, False).train
    assert (train.head_learning_rate, train.warmup) == (0.5, 0)
    logged.clear()
    train = recipe_of(Config(model=ModelConfig("random")), 60, False).train
    assert (train.learning_rate, train.head_learning_rate, train.warmup) == (3e-5, None, 0.1)
    assert logged.messages == []
    with pytest.raises(InputError, match="must be a folder with config.json"):
        recipe_of(Config(model=ModelConfig(name=str(tmp_path))), 60, False)


@pytest.mark.parametrize(
    ("steps_per_epoch", "class_sizes", "has_pairs", "epochs", "reason"),
    [
        (60, (375, 307, 333, 320, 295, 276), False, 3, "as usual for single texts"),
        (112, (412, 458, 62, 906, 387, 1254, 90), False, 6, "smallest class has only 62"),
        # lic2020_events: a micro F1 of 0.94 after 3 epochs
        (337, (1497, 22), False, 3, "as usual for single texts"),
        (1073, (23_000, 11_000), True, 4, "as usual for pairs of texts"),
        (17, (8,) * 67, False, 31, "at least 522 steps are needed"),
        (30_000, (500_000, 460_000), True, 2, "6,000 steps are enough"),
    ],
)
def test_epochs_follow_from_rows_and_the_smallest_class(
    logged, steps_per_epoch, class_sizes, has_pairs, epochs, reason
):
    train = with_epochs(Config(), steps_per_epoch, class_sizes, has_pairs).train
    assert train.epochs == epochs
    # In many short epochs dev is evaluated about ten times
    eval_every = None
    if epochs == 31:
        eval_every = 17 * 4
    assert train.eval_every == eval_every
    (line,) = logged.messages
    assert line.startswith(f"train.epochs auto: {epochs} epochs of {steps_per_epoch:,} steps, ")
    assert reason in line


def test_epochs_of_a_fitted_head_and_settings_for_epochs():
    config = Config(model=ModelConfig(head="linear"))
    assert with_epochs(config, 112, (412, 458, 62), False).train.epochs == 3
    assert with_epochs(config, 30_000, (500_000, 460_000), False).train.epochs == 2
    config = Config(train=TrainConfig(epochs=31))
    assert with_epochs(config, 17, (8,) * 67, False) == config
    assert with_epochs(Config(train=TrainConfig(eval_every=5)), 17, (8,) * 67, False).train.eval_every == 5


def load(*words: str) -> Config:
    return load_config(["--data.train=new.csv", *words])


def test_few_rows_of_a_plain_run_have_the_settings_of_the_file(logged):
    words = ["--data.train=new.csv", "--train.seed=3", "--data.max_length=64"]
    chosen = with_head(load_config(words), FEW, 2, False)
    expected = load_config(["--config", str(FEW_LABELS_CONFIG), *words])
    assert replace(chosen, output=expected.output) == expected
    assert "16 rows for 2 labels: a linear head is fitted on the encoder as it is" in logged.text
    assert "--model.head random trains the encoder" in logged.text
    assert "no row is held out as dev" in logged.text
    logged.clear()
    with_dev = with_head(load("--data.dev=dev.csv"), FEW, 2, False)
    assert "a linear head is fitted on the encoder as it is, as with --config" in logged.text
    assert "no row is held out" not in logged.text
    assert (with_dev.model.head, with_dev.data.dev) == ("linear", "dev.csv")
    # A choice that was made is not made again
    assert with_head(chosen, 10**6, 2, False) == chosen


SETTINGS_AND_HEADS = [
    ("--model.head=random", "random"),
    ("--model.freeze=embeddings", "random"),
    ("--model.name=hfl/chinese-macbert-base", "random"),
    ("--model.lora_rank=8", "random"),
    ("--data.task=multi_label", "random"),
    ("--data.task=ordinal", "random"),
    # The sample set
    ("--data.train=null", "random"),
    ("--train.epochs=3", "linear"),
    ("--train.max_steps=9", "linear"),
    ("--data.dev_size=0.2", "linear"),
    ("--train.learning_rate=1e-4", "linear"),
    ("--train.class_weights=balanced", "linear"),
    ("--verb={use_test: false}", "linear"),
]
LINEAR_MESSAGE = "a linear head is fitted first, then all weights are trained"


@pytest.mark.parametrize(("setting", "head"), SETTINGS_AND_HEADS)
def test_a_setting_decides_how_the_head_starts(setting, head, logged):
    """Random where no other start was measured; where a setting says how to train, the encoder is trained."""
    config = load(setting)
    assert with_head(config, FEW, 2, False) == started(config, head)
    if head == "linear":
        assert LINEAR_MESSAGE in logged.text
    else:
        assert not logged.text


ROWS_AND_HEADS = [
    (10_000, 2, False, "linear"),
    (MAX_ROWS + 1, 2, False, "random"),
    (FEW, 1, False, "random"),
    (FEW, 2, True, "random"),
]


@pytest.mark.parametrize(("num_rows", "num_labels", "has_pairs", "head"), ROWS_AND_HEADS)
def test_rows_decide_how_the_head_starts(num_rows, num_labels, has_pairs, head, logged):
    config = load()
    assert with_head(config, num_rows, num_labels, has_pairs) == started(config, head)
    if head == "linear":
        assert LINEAR_MESSAGE in logged.text
    else:
        assert not logged.text


@pytest.mark.parametrize(("rows", "precision"), [(FEW, "bf16"), (10_000, "fp32"), (MAX_ROWS + 1, "bf16")])
def test_a_resumed_run_keeps_its_head_and_its_precision(tmp_path, rows, precision):
    first = with_head(load(f"--output.dir={tmp_path}"), rows, 2, False)
    first = replace(first, train=replace(first.train, precision=precision))
    write_start(tmp_path, first, {}, dataset=None, step=0)
    again = with_saved_choices(load(f"--output.dir={tmp_path}", "--output.resume=auto"))
    assert again.train.precision == precision
    assert with_saved_choices(load(f"--output.dir={tmp_path}")).train.precision == "auto"
    for other_rows in (FEW, 10_000, MAX_ROWS + 1):
        assert replace(with_head(again, other_rows, 2, False), output=first.output) == first
