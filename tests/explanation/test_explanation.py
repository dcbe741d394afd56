"""Attributions, the deletion test, the page and the verb."""

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("captum", reason="needs captum: pip install -r requirements/explain.txt")

from app.data.rows import Row
from app.data.tokens import LongTexts, RowEncoder
from app.errors import InputError, TrainingError
from app.explanation.deletion_test import MIN_UNITS, deletion_test
from app.explanation.explained_model import ExplainedModel
from app.explanation.explanation import Explanation, explain
from app.explanation.page import explanation_parts, render_page, render_text
from app.explanation.tokenised_text import tokenise
from app.prediction.export_record import RECORD, ExportRecord
from app.prediction.open_model import ComputeOptions, open_model
from app.prediction.torch_runtime import load_predictor
from app.runtime.disk import write_json
from tests.report.test_report_files import HIDDEN, HOSTILE, Checker, check_harmless
from tests.saved_classifier import LABELS, NUMBER, as_rows, of_pipeline, save_checkpoint, several_labels
from tests.verbs import explain as main
from tests.verbs import spoken_in

TEXT = "今天真开心，手机 质量abc不好鼎"
FILLER = "今天电影手机质量快递今天电影手机质量"


def spoken_part(explanation: Explanation, part: str, language: str = "en") -> Any:
    """Return what people read of an explanation: its heading, verdict or notes."""
    return spoken_in(language, explanation_parts, explanation)[part]


def explain_one(model: ExplainedModel | Path, *texts: str, **settings) -> Explanation:
    model = ExplainedModel(model, "cpu") if isinstance(model, Path) else model
    [explanation] = explain(model, texts, **settings)
    return explanation


@pytest.fixture(scope="module")
def model(checkpoint) -> ExplainedModel:
    return ExplainedModel(checkpoint, "cpu")


@pytest.fixture(scope="module")
def several(tmp_path_factory) -> Path:
    """A model that gives TEXT two of its three labels."""
    return save_checkpoint(tmp_path_factory.mktemp("sets"), **several_labels(0.01, 0.01, 1.0))


@pytest.fixture(scope="module")
def rule_model(tmp_path_factory) -> ExplainedModel:
    """A model whose rule is known: 好 and 喜 speak for 正面, 差 and 讨 for 负面, all others for nothing."""
    model = ExplainedModel(save_checkpoint(tmp_path_factory.mktemp("rule_model")), "cpu")
    bert = model.model.bert
    head = model.model.classifier
    width = bert.config.hidden_size
    with torch.no_grad():
        for weight in model.model.parameters():
            weight.zero_()
        for module in model.model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.fill_(1)
        words = bert.embeddings.word_embeddings.weight
        words[:, 0] = 1
        words[:, 2] = -1
        for characters, sign in (("好喜", 1), ("差讨", -1)):
            words[model.tokenizer.convert_tokens_to_ids([*characters]), 1] = 4.0 * sign
        attention = bert.encoder.layer[0].attention
        # Without queries, the mean of all tokens
        attention.self.value.weight[1, 1] = 1
        attention.output.dense.weight.copy_(20 * torch.eye(width))
        bert.pooler.dense.weight.copy_(0.2 * torch.eye(width))
        for label, sign in (("正面", 1), ("负面", -1)):
            head.weight[LABELS.index(label), 1] = 5.0 * sign
        head.bias[LABELS.index("中性")] = 1.0
    return model


def of_characters(explanation: Explanation, part: int = 0) -> np.ndarray:
    """Return the value of each character, (num_characters,); those of a unit share its value."""
    values = np.zeros(len(explanation.text.texts[part]))
    for unit, value in zip(explanation.text.units, explanation.values, strict=True):
        if unit.part == part:
            values[unit.start : unit.end] += value / (unit.end - unit.start)
    return values


PAIR = ("今天真开心", "手机质量不好")
CASES = [("bert", (TEXT,)), ("bert", PAIR), ("distilbert", (TEXT,)), ("xlnet", (TEXT,))]


@pytest.mark.parametrize(("architecture", "texts"), CASES)
def test_probabilities_are_those_of_transformers(tmp_path, architecture, texts):
    result = explain_one(save_checkpoint(tmp_path, architecture), *texts)
    row = texts[0] if len(texts) == 1 else {"text": texts[0], "text_pair": texts[1]}
    np.testing.assert_allclose(result.probabilities, of_pipeline(tmp_path, [row])[0], atol=1e-5)
    assert result.label == result.probabilities.argmax()
    checked = Checker(spoken_in("zh", render_page, [result]))
    assert spoken_part(result, "verdict", "zh") in checked.text
    assert all(text in checked.text for text in texts)
    characters = [of_characters(result, part) for part in range(len(texts))]
    assert [len(values) for values in characters] == [len(text) for text in texts]
    assert sum(values.sum() for values in characters) == pytest.approx(result.values.sum())
    if len(texts) == 2:
        assert "Second text" in Checker(render_page([result])).text
        assert "2: 1" in render_text(result)


@pytest.mark.parametrize("fixture", ["checkpoint", "several"])
def test_attributions_add_up_to_the_difference_from_a_masked_text(fixture, request):
    folder = request.getfixturevalue(fixture)
    for explanation in explain(ExplainedModel(folder, "cpu"), (TEXT,)):
        masked = "[MASK]" * len(explanation.text.units)
        whole, neutral = of_pipeline(folder, [TEXT, masked])[:, explanation.label]
        difference = np.log(whole / (1 - whole)) - np.log(neutral / (1 - neutral))
        assert explanation.values.sum() == pytest.approx(difference, abs=0.02)
        assert explanation.p_value is not None


def test_each_predicted_label_of_several_is_explained(several):
    model = ExplainedModel(several, "cpu")
    explanations = explain(model, (TEXT,))
    [pipeline] = of_pipeline(several, [TEXT])
    [prediction] = open_model(several, ComputeOptions("cpu")).predictor.predict(as_rows([TEXT]))
    predicted = [explanation.label for explanation in explanations]
    assert predicted == explanations[0].predicted
    assert {LABELS[label] for label in predicted} == set(prediction.answer)
    assert len(explanations) == 2
    for explanation in explanations:
        np.testing.assert_allclose(explanation.probabilities, pipeline, atol=1e-5)
        assert f"{LABELS[explanation.label]} (predicted), probability" in spoken_part(explanation, "heading")
    assert Checker(render_page(explanations)).tags.count("h1") == 2
    [other_label] = {0, 1, 2} - set(predicted)
    names = ", ".join(LABELS[label] for label in predicted)
    another = explain_one(model, TEXT, label=LABELS[other_label])
    heading = spoken_part(another, "heading")
    assert f"{LABELS[other_label]} (explained label; the model predicts {names})" in heading
    assert not any(np.allclose(another.values, explanation.values, atol=0.1) for explanation in explanations)
    model.task.thresholds = np.full(3, 2.0)
    explanation = explain_one(model, TEXT)
    assert explanation.label == explanation.probabilities.argmax()
    assert "the model predicts no label" in spoken_part(explanation, "heading")
    assert "模型预测的是：没有标签" in spoken_part(explanation, "heading", "zh")


def test_a_number_is_explained_by_what_raises_and_lowers_it(tmp_path):
    result = explain_one(save_checkpoint(tmp_path, **NUMBER), TEXT)
    score = result.probabilities[0]
    rendered = render_text(result)
    assert result.values.sum() == pytest.approx(result.log_odds - result.neutral, rel=0.02)
    assert result.log_odds == pytest.approx(score, rel=1e-4)
    assert rendered.startswith(f"score: {score:.4g}\n")
    assert "log-odds" not in rendered
    assert "label" not in rendered
    assert "使数值变大" in spoken_in("zh", render_text, result)


@pytest.mark.parametrize(("characters", "label"), [("喜", "正面"), ("讨", "负面"), ("好", "正面")])
def test_a_known_rule_is_found_and_passes_the_test(rule_model, characters, label):
    result = explain_one(rule_model, FILLER[:7] + characters + FILLER[7:])
    assert result.label_names[result.label] == label
    assert np.argmax(of_characters(result)) == 7
    assert of_characters(result)[7] > 0.9 * result.values.sum()
    first, second, against = of_characters(explain_one(rule_model, FILLER + "好喜讨", label="正面"))[-3:]
    assert min(first, second) > 0.1 > -0.1 > against
    assert result.is_explanation
    assert "did use what is marked" in render_text(result)
    assert 'class="verdict good"' in render_page([result])


def test_what_explains_nothing_or_cannot_be_tested_is_said_to_be_no_explanation(rule_model):
    result = explain_one(rule_model, FILLER[:7] + "喜" + FILLER[7:])
    wrong = deletion_test(rule_model, result.text, -result.values, result.label, 50)
    assert wrong > 0.5
    generator = np.random.default_rng(0)
    by_chance = []
    for _ in range(20):
        random_values = generator.permutation(len(result.values))
        p_value = deletion_test(rule_model, result.text, random_values, result.label, 50)
        by_chance.append(p_value <= 0.1)
    assert sum(by_chance) <= 5, "one of ten on average"
    rule = f"the deletion test needs {MIN_UNITS} units of text, and this text has 2."
    for failed, verdict in (
        (replace(result, p_value=wrong), "THIS IS NO EXPLANATION: deleting"),
        (explain_one(rule_model, "今天"), f"Not tested: {rule}"),
    ):
        assert not failed.is_explanation
        assert spoken_part(failed, "verdict").startswith(verdict)
        assert 'class="verdict"' in render_page([failed])
    assert spoken_part(replace(result, p_value=wrong), "verdict", "zh").startswith("这不是解释")


def test_a_long_text_is_explained_where_the_model_reads_it_as_one_row(tmp_path, monkeypatch):
    # A row may be longer than a batch
    monkeypatch.setattr("app.explanation.explained_model.PASS_TOKENS", 10)
    folder = save_checkpoint(tmp_path)
    (folder / "config.yaml").write_text("data: {long: head_tail, max_length: 18}\n")
    text = "今天真开" + "电影" * 40 + "手机质量不好讨厌差评快递"
    result = explain_one(folder, text)
    assert result.text.read == [[(0, 4), (84, 96)]]
    predictor = load_predictor(folder, 18, LongTexts("head_tail"), device="cpu")
    [predicted] = predictor.predict([Row(1, text, None, None)])
    assert result.probabilities == pytest.approx(predicted.probabilities, abs=1e-5)
    [note] = spoken_part(result, "notes")
    assert "of 96 characters 1-4, 85-96 are explained" in note
    assert "96 个字符中只有 1-4、85-96 " in spoken_part(result, "notes", "zh")[0]
    assert "今天真开 … 手机" in Checker(render_page([result])).text

    (folder / "config.yaml").write_text("data: {long: windows, max_length: 18}\n")
    text = "今天真开心，手机质量不好讨厌差评"
    assert explain_one(folder, text).text.read == [[(0, 16)]]
    with pytest.raises(InputError, match="found one of 2; explain a part .* characters 1 to 16"):
        explain_one(folder, text + "快")


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_strangers_cannot_act(model, text):
    if "\ud800" in text:
        with pytest.raises(InputError):
            explain_one(model, text)
        return
    result = explain_one(model, text + "好好好好好")
    assert "href" not in dict(check_harmless(render_page([result])).attributes)
    assert not HIDDEN.search(render_text(result))


def test_the_calibration_of_the_run_is_used_and_the_same_text_gets_the_same_explanation(model, tmp_path):
    explanation = explain_one(model, TEXT)
    assert render_text(explain_one(model, TEXT)) == render_text(explanation)
    cooler = explain_one(save_checkpoint(tmp_path, decision={"temperature": 2.0}), TEXT)
    assert cooler.probabilities.max() < explanation.probabilities.max()
    rooted = explanation.probabilities**0.5
    np.testing.assert_allclose(cooler.probabilities, rooted / rooted.sum(), atol=1e-6)


def test_tokens_that_share_characters_are_one_unit():
    from tokenizers import Tokenizer, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: at for at, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = tokenise(RowEncoder(tokenizer, None), Row(1, "好a", None, None), None)
    assert text.tokens.shape == (2, 4)
    assert [(unit.start, unit.end, unit.tokens) for unit in text.units] == [(0, 1, (0, 1, 2)), (1, 2, (3,))]


def test_what_cannot_be_explained_is_an_error(model, checkpoint, tmp_path, capsys, monkeypatch):
    with pytest.raises(InputError, match="did you mean '正面'"):
        explain_one(model, TEXT, label="正正面")
    with pytest.raises(InputError, match="the text cannot be explained"):
        explain_one(model, "  ")
    damaged = ExplainedModel(checkpoint, "cpu")
    with torch.no_grad():
        damaged.model.classifier.bias.fill_(float("nan"))
    with pytest.raises(TrainingError, match="finite"):
        explain_one(damaged, TEXT)
    made = {"from": "sample-007"}
    problem_type = "single_label_classification"
    record = ExportRecord(LABELS, 8, "right", 0, [], "fp32", problem_type, {}, {}, {}, made)
    write_json(tmp_path / RECORD, asdict(record))
    assert main([str(tmp_path), TEXT]) == 2
    assert "use the run that it was made from, sample-007" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    assert main([str(checkpoint), TEXT]) == 2
    assert "pip install -r requirements/explain.txt -c constraints.txt" in capsys.readouterr().err


def test_the_verb_speaks_the_language_of_the_user_and_reads_as_the_run(tmp_path, capsys, monkeypatch):
    folder = str(save_checkpoint(tmp_path / "model"))
    page = tmp_path / "why.html"
    # The progress bar of save_pretrained
    capsys.readouterr()
    assert main([folder, TEXT, "--text_pair", "手机质量不好"]) == 0
    printed = capsys.readouterr()
    assert "Integrated gradients of the log-odds" in printed.out
    assert "2: " in printed.out
    assert printed.err == ""
    config = tmp_path / "model" / "config.yaml"
    config.write_text("data: {max_length: 8, remove_spaces: true, text_pair_column: null}\n")
    assert main([folder, "今天 真 开心手机质量不好"]) == 0
    assert "at most 8 tokens: of 11 characters 1-6 are" in capsys.readouterr().out
    config.write_text("data: {text_pair_column: other}\n")
    assert main([folder, "今天"]) == 2
    assert "the model was trained on pairs of texts, found single texts" in capsys.readouterr().err
    config.unlink()
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert main([folder, f"\u202e{TEXT}\u202e", "--html", str(page)]) == 0
    printed = capsys.readouterr()
    assert "积分梯度" in printed.out
    assert printed.err == f"Saved in {page}\n"
    assert "‹U+202E›" in page.read_text(encoding="utf-8")
