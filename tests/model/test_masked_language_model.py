"""The masked language model: python -m pytest tests/model/test_masked_language_model.py"""

import pytest
import torch
from transformers import AutoModelForMaskedLM

from app.batching.loader import collate
from app.config.schema import ModelConfig
from app.errors import InputError
from app.model.classifier import MaskedLanguageModel
from app.model.pretrained import build_masked_model, build_model, save_model
from tests.tiny import SIZES, tiny_tokenizer, token_rows


def random_model(architecture: str = "bert", pad_id: int = 0) -> MaskedLanguageModel:
    torch.manual_seed(0)
    sizes = SIZES | {"initializer_range": 0.2, "max_position_embeddings": 64}
    settings = ModelConfig(architecture=architecture, config=sizes, dropout=0.0)
    return build_masked_model(settings, tiny_tokenizer(pad_id), 32).eval()


def weights(model: MaskedLanguageModel) -> dict:
    return {name.removeprefix("model."): value for name, value in model.state_dict().items()}


@pytest.mark.parametrize("architecture", ["bert", "ernie", "roberta", "xlm-roberta", "electra", "modernbert"])
def test_packed_logits_of_masked_tokens_are_those_of_transformers(architecture, tmp_path):
    """Saved and loaded by transformers, the model computes the same for every token; ours only those that are
    asked for."""
    pad_id = 1 if "roberta" in architecture else 0
    model = random_model(architecture, pad_id)
    save_model(tmp_path, model.model, weights(model), tiny_tokenizer(pad_id))
    plain, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] | info["unexpected_keys"]
    rows = token_rows([9, 4, 17])
    packed, padded = (collate(rows, None, model.layout(is_packed)) for is_packed in (True, False))
    places = [(0, 3), (1, 1), (1, 2), (2, 16)]
    mask = torch.zeros_like(padded["input_ids"], dtype=torch.bool)
    for row, place in places:
        mask[row, place] = True
    index = torch.tensor([int(packed["first_tokens"][row]) + place for row, place in places])
    with torch.inference_mode():
        expected = plain.eval()(**padded).logits[mask]
        torch.testing.assert_close(model(**padded, masked=mask), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model(**packed, masked=index), expected, rtol=1e-4, atol=1e-4)
        assert model(**packed, masked=index[:0]).shape == expected[:0].shape


def test_the_output_matrix_is_a_parameter_once():
    model = random_model()
    shapes = [tuple(parameter.shape) for _, parameter in model.named_parameters()]
    assert (shapes.count((21, 32)), shapes.count((21,))) == (1, 1)
    model(**collate(token_rows([5]), None, model.layout(True))).sum().backward()
    assert model.model.get_input_embeddings().weight.grad.norm() > 0


def test_a_head_that_is_there_is_kept_and_a_classifier_takes_the_encoder(tmp_path):
    model = random_model()
    save_model(tmp_path, model.model, weights(model), tiny_tokenizer())
    again = build_masked_model(ModelConfig(name=str(tmp_path)), tiny_tokenizer(), 32)
    assert all(torch.equal(value, weights(again)[name]) for name, value in weights(model).items())
    classifier = build_model(ModelConfig(name=str(tmp_path)), tiny_tokenizer(), ["a", "b"], 32)
    layer = "bert.encoder.layer.1.output.dense.weight"
    assert torch.equal(weights(model)[layer], classifier.model.state_dict()[layer])
    # The checkpoint has none
    assert torch.equal(classifier.model.bert.pooler.dense.weight, torch.eye(32))
    # And back: without a head for masked tokens it gets a new one
    classifier.model.save_pretrained(tmp_path / "classifier")
    new = build_masked_model(ModelConfig(name=str(tmp_path / "classifier")), tiny_tokenizer(), 32)
    assert torch.equal(weights(new)[layer], weights(model)[layer])
    with pytest.raises(InputError, match="the weights of .* must be those of"):
        build_masked_model(ModelConfig(name=str(tmp_path), config={"hidden_size": 16}), tiny_tokenizer(), 32)


def test_models_that_cannot_run_packed_predict_padded():
    model = random_model("roformer")
    padded = collate(token_rows([6, 3]), None, model.layout(False))
    mask = torch.zeros_like(padded["input_ids"], dtype=torch.bool)
    mask[0, 2] = mask[1, 1] = True
    assert model(**padded, masked=mask).shape == model(**padded).shape == (2, 21)
