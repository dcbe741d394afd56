"""How weights start, and which are trained: the linear start of a head, LoRA by peft, and the run folder."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from app.batching.loader import collate
from app.checkpoints.progress import RunProgress
from app.config.command_line import load_config
from app.errors import InputError
from app.model.classifier import Classifier
from app.model.linear_start import C, add_mean_layer, check_ends_in_layer, fit_regression
from app.model.lora import add_lora, load_adapter
from app.model.model_parts import last_layer
from app.modes.mode import Single
from app.prediction.torch_runtime import load_predictor
from app.run import main
from app.runtime.disk import read_json
from app.training.build import build
from app.training.head_start import start_head
from app.training.step import train_steps
from tests.multi_label_runs import train as train_posts
from tests.multi_label_runs import write_posts
from tests.ranks import SMALL, settings
from tests.saved_classifier import random_texts, save_checkpoint
from tests.tiny import plain_model, tiny_lines, tiny_model, token_rows, write_tiny
from tests.verbs import export

needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="needs peft: requirements/lora.txt")
STILL = {"sizes": {}, "model__head": "linear", "train__epochs": 1, "data__max_length": 32}
STILL |= dict.fromkeys(("train__learning_rate", "train__head_learning_rate"), 1e-9)


def encode(folder: Path, texts: list[str]):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenizer(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")


def states_and_logits(folder, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return what the last layer reads of each text, and the logits, by transformers."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    states = []
    last_layer(model)[1].register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
    with torch.no_grad():
        logits = model(**encode(folder, texts)).logits
    return states[0].numpy(), logits.numpy()


def test_the_head_is_logistic_regression_on_the_means_of_the_encoder(tmp_path):
    """All of it by transformers and scikit-learn, on means of the encoder as it was before."""
    run = tmp_path / "run"
    encoder = save_checkpoint(tmp_path / "encoder")
    data = [f"--data.train={write_tiny(tmp_path / 'rows.tsv')}", f"--data.cache_dir={tmp_path / 'cache'}"]
    changes = {"model__name": encoder, "data__dev_size": 0, "data__test_size": 0.2}
    assert main("single", "", settings(data, run, **STILL, **changes)) == 0
    texts = random_texts(30)
    states, logits = states_and_logits(run, texts)
    inputs = encode(encoder, texts)
    mask = inputs["attention_mask"][..., None]
    with torch.no_grad():
        hidden_states = AutoModel.from_pretrained(encoder).eval()(**inputs).last_hidden_state
    means = ((hidden_states * mask).sum(1) / mask.sum(1)).numpy()
    centred = means - means.mean(axis=1, keepdims=True)
    # The tanh of the pooler bends a little, and bf16 rounds
    wanted = np.tanh(0.1 * centred / centred.std(axis=1, keepdims=True))
    np.testing.assert_allclose(states, wanted, atol=0.02)
    lines = [line.split("\t") for line in tiny_lines(20)[1:]]
    training_states, _ = states_and_logits(run, [text for text, _ in lines])
    length = np.linalg.norm(training_states, axis=1).mean()
    centre = training_states.mean(axis=0)
    labels = [name for _, name in lines]
    model = LogisticRegression(C=C, max_iter=1000).fit((training_states - centre) / length, labels)
    answers = [load_predictor(run).task.label_names[label] for label in logits.argmax(axis=1)]
    # A fifth of the rows was for the test, so that weights differ a little
    assert np.mean(model.predict((states - centre) / length) == answers) > 0.8
    assert read_json(run / "report.json")["accuracy"] > 0.8
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install -r requirements/onnx.txt")
    assert export([str(run)]) == 0


def test_several_labels_a_row(tmp_path):
    encoder = save_checkpoint(tmp_path / "encoder")
    posts = write_posts(tmp_path / "posts.jsonl")
    sizes = {"data__dev_size": 0.2, "data__test_size": 0.2}
    report = train_posts(posts, tmp_path / "run", **STILL, **sizes, model__name=encoder)
    assert report["micro_f1"] > report["baselines"]["most frequent set"]["micro_f1"]


def test_a_row_with_a_distribution_counts_for_each_label_by_its_share():
    inputs = np.random.default_rng(0).normal(size=(60, 5))
    labels = inputs[:, :3].argmax(axis=1)
    shares = 0.7 * np.eye(3)[labels] + 0.1
    soft = fit_regression(inputs, labels, True, shares)
    expected = LogisticRegression(C=C, max_iter=1000)
    rows = np.repeat(np.arange(60), 3)
    expected.fit(inputs[rows], np.tile(np.arange(3), 60), sample_weight=shares.ravel())
    np.testing.assert_allclose(soft.coef_, expected.coef_, atol=1e-3)
    hard = fit_regression(inputs, labels, True)
    assert np.linalg.norm(soft.coef_) < np.linalg.norm(hard.coef_) / 2


def test_the_layer_is_added_once_and_to_a_bert_only():
    model = tiny_model().model
    add_mean_layer(model)
    add_mean_layer(model)
    assert model.config.num_hidden_layers == len(model.bert.encoder.layer) == 3
    assert torch.equal(model.bert.pooler.dense.weight, torch.eye(32))
    roberta = tiny_model("roberta").model
    before = {name: value.clone() for name, value in roberta.state_dict().items()}
    add_mean_layer(roberta)
    assert all(torch.equal(before[name], value) for name, value in roberta.state_dict().items())
    assert before.keys() == roberta.state_dict().keys()


# What stands before the last layer: dense and tanh; one dense layer; the mean of the tokens; the last token
HEADS = {
    "xlm-roberta": {},
    "ernie": {},
    "electra": {},
    "modernbert": {"classifier_pooling": "mean"},
    "qwen3": {"head_dim": 8, "num_key_value_heads": 1},
    "deberta-v2": {},
    "albert": {"embedding_size": 16},
    "gemma": {"head_dim": 8, "num_key_value_heads": 1, "pad_token_id": 0},
}


@pytest.mark.parametrize("architecture", HEADS)
def test_the_head_of_any_architecture_is_logistic_regression_on_what_it_reads(architecture, data, tmp_path):
    """What it reads is taken from transformers' own model, of one text after the other."""
    config = {f"model__config__{key}": value for key, value in HEADS[architecture].items()}
    config |= {"model__architecture": architecture, "model__head": "linear", "data__test_size": 0}
    with Single(load_config(settings(data, tmp_path, **config))) as mode:
        parts = build(mode.config, mode)
        assert not parts.model.knows_labels
        start_head(mode, parts)
        assert parts.model.knows_labels
        model = parts.model.model.eval()
        loader = parts.loaders["train"]
        name, layer = last_layer(model)
        states = []
        with torch.no_grad():
            for row in loader.split.rows:
                tokens = np.concatenate(loader.store.windows(row)).astype(np.int64)
                read = []
                hook = layer.register_forward_pre_hook(lambda _, inputs, read=read: read.append(inputs[0]))
                parts.model(torch.from_numpy(tokens)[None])
                hook.remove()
                # A decoder's layer reads all tokens, of which the last one counts
                states.append(read[0].reshape(-1, layer.in_features)[-1].numpy())
    states = np.array(states)
    has_bias = layer.bias is not None
    assert has_bias == (architecture not in ("qwen3", "gemma")), name
    length = np.linalg.norm(states, axis=1).mean()
    centre = states.mean(axis=0) if has_bias else 0
    regression = LogisticRegression(C=C, max_iter=1000, fit_intercept=has_bias)
    regression.fit((states - centre) / length, loader.split.labels)
    wanted = regression.decision_function((states - centre) / length)
    weights = [layer.weight.detach().numpy(), layer.bias.detach().numpy() if has_bias else 0]
    logits = states @ weights[0].T + weights[1]
    np.testing.assert_allclose(logits, wanted, atol=0.02 * np.abs(wanted).max())
    assert (
        logits.argmax(axis=1) == regression.predict(states * 0 + (states - centre) / length)
    ).mean() > 0.95


@pytest.mark.parametrize("long", ["cut", "windows"])
def test_the_head_is_fitted_in_the_precision_of_the_run(long, data, checkpoint, tmp_path):
    """In bf16 it is about that of fp32, and not the same."""
    weights = {}
    for precision in ("fp32", "bf16"):
        changes = {"model__name": checkpoint, "model__head": "linear", "train__precision": precision}
        changes |= {"data__long": long, "data__max_length": 12}
        with Single(load_config(settings(data, tmp_path, sizes={}, **changes))) as mode:
            parts = build(mode.config, mode)
            start_head(mode, parts)
            _name, layer = last_layer(parts.model.model)
            weights[precision] = layer.weight.detach().clone()
    assert weights["bf16"].dtype == torch.float32
    difference = (weights["bf16"] - weights["fp32"]).norm() / weights["fp32"].norm()
    assert 0 < difference < 0.2


class Doubled(torch.nn.Module):
    """A part of a head behind its last linear layer."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return 2 * self.layer(states)


def test_a_head_that_does_not_end_in_a_linear_layer_is_refused():
    model = tiny_model("albert")
    check_ends_in_layer(model, [[2, 5, 3], [2, 3]])
    model.model.classifier = Doubled(model.model.classifier)
    with pytest.raises(InputError, match=r"found more behind it in this albert model; leave it out"):
        check_ends_in_layer(model, [[2, 5, 3], [2, 3]])


def test_a_resumed_run_does_not_fit_its_head_again(data, checkpoint, tmp_path, at_step):
    """The data report comes before the head is fitted, which takes a while, and a line says that it is."""
    changes = {"sizes": {}, "model__head": "linear", "model__name": checkpoint, "train__epochs": 1}
    at_step(2)
    assert main("single", "", settings(data, tmp_path, **changes)) == 143
    log = (tmp_path / "train.log").read_text(encoding="utf-8")
    places = [
        log.index(line) for line in ("Data\n", "model.head linear: the encoder reads", "is fitted, after")
    ]
    assert places == sorted(places)
    at_step(None)
    assert main("single", "", settings(data, tmp_path, **changes)) == 0
    assert (tmp_path / "train.log").read_text(encoding="utf-8").count("the encoder reads") == 1


STARTS = {
    "random weights": {},
    "random head": {"name": True, "head": "random"},
    "linear head": {"name": True, "head": "linear"},
    "frozen embeddings": {"name": True, "freeze": "embeddings"},
    "frozen encoder": {"name": True, "freeze": "encoder"},
    "linear head, frozen embeddings": {"name": True, "head": "linear", "freeze": "embeddings"},
    "linear head, frozen encoder": {"name": True, "head": "linear", "freeze": "encoder"},
    "lora": {"name": True, "lora_rank": 2},
    "linear head, lora": {"name": True, "head": "linear", "lora_rank": 2},
}


@pytest.mark.parametrize("start", STARTS)
def test_every_trainable_weight_learns_within_a_few_steps(start, data, checkpoint, tmp_path):
    """Without decay, so that only gradients move weights. A key's bias shifts all scores of a query alike, so
    its exact gradient is 0."""
    if "lora" in start:
        pytest.importorskip("peft")
    changes = {f"model__{key}": value for key, value in STARTS[start].items()}
    sizes = SMALL
    if "model__name" in changes:
        changes["model__name"] = checkpoint
        sizes = {}
    changes |= {"train__max_steps": 5, "train__warmup": 0, "train__weight_decay": 0}
    config = load_config(settings(data, tmp_path, sizes=sizes, **changes))
    with Single(config) as mode:
        parts = build(config, mode)
        start_head(mode, parts)
        mode.setup(parts.model, parts.config)
        trainable = {name: value for name, value in parts.model.named_parameters() if value.requires_grad}
        before = {name: value.detach().clone() for name, value in trainable.items()}
        progress = RunProgress()
        train_steps(mode, parts.loaders["train"], parts.plan, parts.task.loss, progress, lambda *_: None)
    unmoved = {name for name in before if torch.equal(before[name], trainable[name])}
    assert {name for name in unmoved if not name.endswith("key.bias")} == set()


def test_the_first_logits_of_a_linear_start_do_not_depend_on_the_query():
    """All tokens get the same attention, to the bit, as where the query is 0 too."""
    plain = plain_model(tiny_model())
    add_mean_layer(plain)
    model = Classifier(plain).eval()
    inputs = collate(token_rows([3, 17, 8]), None, model.layout(packed=True))
    attention = model.model.bert.encoder.layer[-1].attention.self
    assert attention.query.weight.any()
    with torch.no_grad():
        logits = model(**inputs)
        attention.query.weight.zero_()
        assert torch.equal(model(**inputs), logits)


DECODER = {"model__architecture": "qwen3", "model__config__head_dim": 8}
DECODER |= {"model__config__num_key_value_heads": 1}
LEARNS = {"model__config__initializer_range": 0.2, "train__learning_rate": 0.03, "train__epochs": 3}


@needs_peft
@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "qwen3", "modernbert", "deberta-v2"])
def test_all_linear_layers_of_the_encoder_get_factors_and_the_head_is_trained(architecture):
    plain = tiny_model(architecture).model
    model = tiny_model(architecture)
    add_lora(model, 4)
    encoder = f"{plain.base_model_prefix}."
    head = {name for name, _ in plain.named_parameters() if not name.startswith(encoder) or "pooler" in name}
    linear = [name for name, module in plain.named_modules() if isinstance(module, torch.nn.Linear)]
    linear = [name for name in linear if name.startswith(encoder) and "pooler" not in name]
    assert len(linear) >= 8
    assert head
    factors = {f"{name}.lora_{factor}.default.weight" for name in linear for factor in "AB"}
    names = {name for name, value in model.named_parameters() if value.requires_grad}
    assert {name.removeprefix("model.") for name in names} == factors | head


@pytest.fixture(scope="module")
def base(data, tmp_path_factory) -> Path:
    """A checkpoint to begin with: a run without LoRA."""
    folder = tmp_path_factory.mktemp("base") / "run"
    assert main("single", "", settings(data, folder, **LEARNS | {"train__epochs": 1})) == 0
    return folder


def train(data: list[str], folder: Path, **changes) -> int:
    return main("single", "", settings(data, folder, **LEARNS | {"model__lora_rank": 4} | changes))


@needs_peft
@pytest.mark.parametrize("changes", [{}, DECODER], ids=["bert", "qwen3"])
def test_the_run_folder_is_an_ordinary_checkpoint_beside_its_adapter(data, tmp_path, changes):
    assert train(data, tmp_path, **changes) == 0
    names = set(load_file(tmp_path / "model.safetensors"))
    assert not [name for name in names if "lora" in name or "base_layer" in name]
    files = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert files == {"adapter_config.json", "adapter_model.safetensors"}
    rows = [line.split(",") for line in (tmp_path / "predictions.csv").read_text().splitlines()[1:]]
    predicted = pipeline("text-classification", str(tmp_path))([row[2] for row in rows])
    assert [row[4] for row in rows] == [answer["label"] for answer in predicted]
    assert len({row[4] for row in rows}) > 1


@needs_peft
def test_states_and_adapter_have_what_is_trained_only_and_peft_reads_it(data, base, tmp_path):
    # By the loss, the model before the first step is not the best
    assert train(data, tmp_path, model__name=base, train__best_metric="loss") == 0
    (state,) = (tmp_path / "state").iterdir()
    weights, optimizer = (load_file(state / f"{name}.safetensors") for name in ("weights", "optimizer"))
    adapter = load_adapter(tmp_path / "adapter" / "adapter_model.safetensors")
    of_optimizer = {name.removeprefix("state.").rpartition(".")[0] for name in optimizer}
    assert weights.keys() == adapter.keys() == of_optimizer
    before, after = (load_file(path / "model.safetensors") for path in (base, tmp_path))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    layers = {f"{name.partition('.lora_')[0]}.weight" for name in adapter if "lora_" in name}
    assert changed == layers | {name for name in adapter if "lora_" not in name}
    config = read_json(tmp_path / "adapter" / "adapter_config.json")
    assert config["base_model_name_or_path"] == str(base)
    tokens = AutoTokenizer.from_pretrained(tmp_path)(["好棒美", "差坏"], padding=True, return_tensors="pt")
    plain, merged = map(AutoModelForSequenceClassification.from_pretrained, (base, tmp_path))
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(plain, tmp_path / "adapter").eval()
    with torch.no_grad():
        torch.testing.assert_close(adapted(**tokens).logits, merged(**tokens).logits)


FROZEN = {"model__lora_rank": 0, "model__freeze": "encoder"}


@pytest.mark.parametrize("part", [pytest.param({}, marks=needs_peft), FROZEN], ids=["lora", "freeze"])
def test_a_run_resumes_with_the_weights_it_began_with_only(data, base, tmp_path, capfd, part):
    """Its training states do not have them."""
    copy = shutil.copytree(base, tmp_path / "base")
    folder = tmp_path / "run"
    assert train(data, folder, **part, model__name=copy, train__epochs=1) == 0
    (state,) = (folder / "state").iterdir()
    assert not any("embeddings" in name for name in load_file(state / "weights.safetensors"))
    weights = load_file(copy / "model.safetensors")
    name = "bert.embeddings.word_embeddings.weight"
    save_file(weights | {name: weights[name] + 1}, copy / "model.safetensors", metadata={"format": "pt"})
    assert train(data, folder, **part, model__name=copy, train__epochs=2) == 2
    assert "the weights that are not trained (model.name, train.seed) was" in capfd.readouterr().err
