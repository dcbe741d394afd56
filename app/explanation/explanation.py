"""A text -> what each of its tokens adds to the label's log-odds, by integrated gradients
(https://arxiv.org/abs/1703.01365), whether that explains anything, by a deletion test, and what people see of
it: text for the terminal, and one HTML file of coloured words."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ..data.bad_row import BadRow
from ..data.rows import Row
from ..data.tokens import RowEncoder, ranges_of
from ..errors import InputError, TrainingError, excerpt, listed, nearest, needed
from ..prediction.open_model import (
    OpenedModel,
    is_exported,
    long_texts,
    read_record,
    recorded_settings,
)
from ..prediction.sources import text_rows
from ..prediction.torch_runtime import TorchRuntime, load_checkpoint, longest_row, task_of_checkpoint
from ..report.shown import page_environment, visible
from ..runtime.devices import choose_device
from ..text_table import text_table
from ..words import _

BATCH_TOKENS = 4096  # tokens of a pass: its rows times its longest row
STEPS = 64  # of the integral, on the line from the neutral text to the text
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)  # shares of the units that are deleted
DRAWS = 50  # random orders of deletion
MIN_UNITS = 5  # with fewer, random deletion is the same deletion too often
# A p-value up to this passes. A smaller level would fail texts in which a single unit decides: of as many
# random orders as there are units, about one begins with that unit too.
LEVEL = 0.1
STRONGEST_SHADE = 0.85
MAX_LISTED = 10  # tokens for the label, and as many against it
MAX_TOKEN = 20  # characters


class Unit(NamedTuple):
    """Characters `start` to `end` of text `part` (1: the second of a pair), and their tokens' positions. Most
    units have one token. Tokens that share a character, as in byte-level tokenizers, are one unit."""

    part: int
    start: int
    end: int
    tokens: tuple[int, ...]
    is_unknown: bool


class TokenisedText(NamedTuple):
    """One text, or a pair: `tokens` (2, num_tokens) int64 are ids and token types; `units` in order. `read`
    has the ranges of characters, from the first to the last (exclusive), that the model reads of each text:
    none, one, or head and tail."""

    texts: tuple[str, ...]
    tokens: np.ndarray
    units: list[Unit]
    read: list[list[tuple[int, int]]]


@dataclass(frozen=True)
class Explanation:
    """Why `label`, a class id, has its probability. `probabilities` (num_labels,) are in the order of
    `label_names`; `predicted` are the class ids of the labels that the model gives to the text.

    `values` (num_units,) are what the units add to the label's log-odds, from `neutral`, those of a text of
    `[MASK]`, to `log_odds`. `p_value` is that of the deletion test, None for a text too short for it. With
    `is_number`, the model gives a number: it is the only "probability", and takes the place of log-odds too.
    """

    text: TokenisedText
    label_names: list[str]
    probabilities: np.ndarray
    predicted: list[int]
    label: int
    values: np.ndarray
    log_odds: float
    neutral: float
    p_value: float | None
    is_number: bool

    @property
    def is_explanation(self) -> bool:
        """Whether the attributions find what matters to the model better than chance."""
        return self.p_value is not None and self.p_value <= LEVEL


class ExplainedModel:
    """The classifier in `folder` as transformers computes it, with its own attention, in fp32.

    `opened` is the same model as it is in memory already: then its weights are copied, its device is taken,
    and nothing is read from `folder`, whose files may have been replaced. Raises InputError for an exported
    model, and as `load_checkpoint` and `choose_device` do.
    """

    def __init__(self, folder: Path, device: str = "auto", opened: OpenedModel | None = None) -> None:
        if opened is None:
            is_export = is_exported(folder)
        else:
            is_export = not isinstance(opened.predictor.runtime, TorchRuntime)
        if is_export:
            raise InputError(
                f"{folder}: an exported model has no gradients, which an explanation needs; use the run that "
                f"it was made from, {read_record(folder).made.get('from', 'see export.json')}"
            )
        if opened is None:
            model, self.tokenizer = load_checkpoint(folder)
            self.task = task_of_checkpoint(folder, model.config)
            self.recorded = recorded_settings(folder)
            max_length = longest_row(model.config, self.tokenizer, self.recorded.get("max_length"))
            self.encoder = RowEncoder(
                self.tokenizer.backend_tokenizer,
                max_length,
                self.tokenizer.truncation_side,
                long_texts(self.recorded),
            )
            self.device = choose_device(device)
        else:
            predictor = opened.predictor
            # Its attention and its last layer are changed for packed batches, which a copy undoes for itself
            model = copy.deepcopy(predictor.runtime.model.model)
            self.tokenizer = predictor.runtime.tokenizer
            self.task = predictor.task
            self.recorded = opened.recorded
            self.encoder = predictor.encoder
            self.device = predictor.runtime.device
        names = signature(model.forward).parameters
        self.takes_types = "token_type_ids" in names and getattr(model.config, "type_vocab_size", 2) > 1
        model.set_attn_implementation("eager")
        self.model = model.eval().to(self.device).requires_grad_(False)
        # The token that stands for "nothing is known here"
        known = (self.tokenizer.mask_token_id, self.tokenizer.unk_token_id, self.tokenizer.pad_token_id)
        self.neutral_id = next((token for token in known if token is not None), 0)

    def logits(self, inputs: torch.Tensor, token_types: torch.Tensor) -> torch.Tensor:
        """Return the logits, (num_rows, num_labels), of ids, or of their embeddings, and types (num_rows,
        length). Raises TrainingError for logits that are not finite."""
        given = {"inputs_embeds" if inputs.is_floating_point() else "input_ids": inputs}
        given |= {"token_type_ids": token_types} if self.takes_types else {}
        logits = self.model(attention_mask=torch.ones_like(token_types), **given).logits
        if not logits.isfinite().all():
            raise TrainingError(
                "the model's logits must be finite numbers; its weights are damaged or too large, choose "
                "another checkpoint"
            )
        return logits

    def log_odds(self, inputs: torch.Tensor, token_types: torch.Tensor, label: int) -> torch.Tensor:
        """Return log(p / (1 - p)) of a label: unlike p it does not flatten where the model is sure."""
        return self.task.log_odds(self.logits(inputs, token_types), label)

    @torch.no_grad()
    def log_odds_of_rows(self, rows: Sequence[np.ndarray], label: int) -> np.ndarray:
        """Return the log-odds of a label, (num_rows,) float64, of rows of tokens, (2, length) each. Rows of
        one length are computed together, so that none is padded."""
        lengths, log_odds = np.array([row.shape[1] for row in rows]), np.empty(len(rows))
        for length in np.unique(lengths):
            same = np.flatnonzero(lengths == length)
            for batch in np.array_split(same, math.ceil(len(same) / max(1, BATCH_TOKENS // int(length)))):
                tokens = torch.as_tensor(np.stack([rows[at] for at in batch]), device=self.device)
                log_odds[batch] = self.log_odds(tokens[:, 0], tokens[:, 1], label).double().cpu().numpy()
        return log_odds


def explain(
    model: ExplainedModel, texts: tuple[str, ...], label: str | None = None, draws: int = DRAWS
) -> list[Explanation]:
    """Return the explanation of a text, or of a pair of texts, for a label (None: for each predicted one;
    where none is predicted, for the most probable one). The same arguments give the same explanation. Raises
    InputError for an empty text, an unknown label, and where captum is not installed; TrainingError for a
    model that gives no numbers."""
    task = model.task
    if label is not None and label not in task.label_names:
        raise InputError(
            f"--label must be a label of the model, found {excerpt(label)}{nearest(label, task.label_names)} "
            f"(known: {listed(task.label_names)})"
        )
    [row] = text_rows([texts], model.recorded)
    if isinstance(row, BadRow):
        raise InputError(f"the text cannot be explained: {row.problem}")
    text = tokenise(model.encoder, row, model.tokenizer.unk_token_id)
    with needed("explain"):
        from captum.attr import IntegratedGradients
    # The straight line of the integral begins at a text of neutral tokens
    neutral = text.tokens.copy()
    neutral[0, [at for unit in text.units for at in unit.tokens]] = model.neutral_id
    both = torch.as_tensor(np.stack([text.tokens, neutral]), device=model.device)
    with torch.no_grad():
        logits = model.logits(both[:1, 0], both[:1, 1])
    probabilities = task.probabilities(logits.double().cpu().numpy())[0]
    answer = task.answer(task.chosen(probabilities[None])[0])
    answers = answer if isinstance(answer, list) else [answer]
    ranked = task.ranked_labels(probabilities).tolist()
    predicted = [at for at in ranked if task.label_names[at] in answers]
    labels, found = predicted or [int(probabilities.argmax())], []
    embedded = model.model.get_input_embeddings()(both[:, 0])
    for label_id in labels if label is None else [task.label_names.index(label)]:
        gradients = IntegratedGradients(model.log_odds).attribute(
            embedded[:1],
            embedded[1:],
            additional_forward_args=(both[:1, 1], label_id),
            n_steps=STEPS,
            internal_batch_size=max(1, BATCH_TOKENS // text.tokens.shape[1]),
        )
        of_tokens = gradients[0].double().sum(-1).cpu().numpy()
        values = np.array([of_tokens[list(unit.tokens)].sum() for unit in text.units])
        ends = map(float, model.log_odds_of_rows([text.tokens, neutral], label_id))
        p_value = deletion_test(model, text, values, label_id, draws)
        about = (text, task.label_names, probabilities, predicted, label_id)
        found.append(Explanation(*about, values, *ends, p_value, not task.has_confidence))
    return found


def tokenise(encoder: RowEncoder, row: Row, unknown_id: int | None) -> TokenisedText:
    """Return a text, or a pair, as its tokens; raises InputError for one without a token, and for one that is
    read in several windows."""
    texts = (row.text,) if row.pair is None else (row.text, row.pair)
    parts, is_cut = encoder.parts_read(texts)
    if encoder.long.way == "windows" and len(parts) > 1:
        [(start, end)] = ranges_of(parts[:1], 0)
        raise InputError(
            f"a text that is read in one window is needed (data.long windows), found one of {len(parts)}; "
            f"explain a part of it, for instance its first window, characters {start + 1:,} to {end:,}"
        )
    tokens = [token for part in parts for token in part]
    units: list[Unit] = []
    for position, token in enumerate(tokens):
        if token.text is None or token.end <= token.start:
            continue  # a special token, or one that stands for no character
        unit = Unit(token.text, token.start, token.end, (position,), token.id == unknown_id)
        if units and units[-1].part == unit.part and unit.start < units[-1].end:
            last = units.pop()
            end, is_unknown = max(unit.end, last.end), unit.is_unknown or last.is_unknown
            unit = Unit(unit.part, last.start, end, last.tokens + unit.tokens, is_unknown)
        units.append(unit)
    if not units:
        raise InputError("the text must have tokens that stand for its characters, found none; give another")
    read = [ranges_of(parts, at) if is_cut else [(0, len(text))] for at, text in enumerate(texts)]
    ids_and_types = np.array([(token.id, token.type) for token in tokens], np.int64).T
    return TokenisedText(texts, ids_and_types, units, read)


def deletion_test(
    model: ExplainedModel, text: TokenisedText, values: np.ndarray, label: int, draws: int
) -> float | None:
    """Return the p-value of `values`, (num_units,), or None for a text too short to be tested.

    Our order of deletion takes the units with the highest values first. The p-value is the share of orders,
    of ours and `draws` random ones, that lower the log-odds at least as much as ours, on average over
    `SHARES`.
    """
    num_units = len(text.units)
    if num_units < MIN_UNITS:
        return None
    counts = np.unique([1, *np.ceil(np.array(SHARES) * num_units - 1e-9).astype(int)])
    generator = np.random.default_rng(0)
    orders = [np.argsort(-values, kind="stable"), *(generator.permutation(num_units) for _ in range(draws))]
    # Special tokens stay
    shorter = []
    for order in orders:
        tokens = [list(text.units[at].tokens) for at in order]
        shorter += [np.delete(text.tokens, sum(tokens[:count], []), axis=1) for count in counts]
    remaining = model.log_odds_of_rows(shorter, label).reshape(len(orders), len(counts)).mean(axis=1)
    return float((1 + (remaining[1:] <= remaining[0] + 1e-9).sum()) / (1 + draws))


def explanation_shown(explanation: Explanation) -> dict:
    """Return what people see of an explanation: sentences; of each text the pieces that were read: `text`,
    the characters, `shade`, from -1 to 1, `value`, written out (None for characters without a token), and
    `unknown`, whether the model does not know them; and the `strongest` tokens for the label, and against it,
    the strongest first, with their `place`, from 1."""
    environment, text = page_environment(Path(__file__).parent, autoescape=False), explanation.text
    said, listed = environment.get_template("sentences.jinja").module, []
    largest, notes, texts = np.abs(explanation.values).max() or 1.0, [], []

    def piece(characters: str, value: float | None = None, is_unknown: bool = False) -> dict:
        return {
            "text": visible(characters, len(characters)),
            "shade": float((value or 0.0) / largest) * STRONGEST_SHADE,
            "value": None if value is None else f"{value:+.4f}",
            "unknown": is_unknown,
        }

    for part, (whole, ranges) in enumerate(zip(text.texts, text.read, strict=True)):
        if ranges != [(0, len(whole))]:
            # Some characters were not read, because the model takes no more tokens
            notes.append(said.note(whole, ranges, text.tokens.shape[1]))
        starts, at, pieces = [start for start, _end in ranges], 0, []
        for unit, value in zip(text.units, explanation.values.tolist(), strict=True):
            if unit.part != part:
                continue
            if unit.start > at:
                pieces.append(piece(" … " if unit.start in starts else whole[at : unit.start]))
            characters, at = whole[unit.start : unit.end], unit.end
            pieces.append(piece(characters, value, unit.is_unknown))
            place = f"{part + 1}: {unit.start + 1}" if len(text.texts) > 1 else f"{unit.start + 1}"
            listed.append({"text": visible(characters, MAX_TOKEN), "place": place, "value": value})
        if not ranges or ranges[-1][1] < len(whole):
            pieces.append(piece(" …"))
        texts.append(pieces)
    listed.sort(key=lambda token: -token["value"])
    return {
        "is_good": explanation.is_explanation,
        "what": said.what(explanation),
        "heading": said.heading(explanation),
        "verdict": said.verdict(explanation, MIN_UNITS),
        "notes": notes,
        "figures": said.figures(explanation),
        "texts": texts,
        "strongest": [
            [token for token in listed[:MAX_LISTED] if token["value"] > 0],
            [token for token in listed[::-1][:MAX_LISTED] if token["value"] < 0],
        ],
    }


def render_text(explanation: Explanation) -> str:
    """Return an explanation for the terminal."""
    shown = explanation_shown(explanation)
    lines = [shown["heading"], shown["verdict"], *shown["notes"]]
    titles = (_("What raises {what}").format(what=shown["what"]), _("What lowers it"))
    for title, tokens in zip(titles, shown["strongest"], strict=True):
        cells = [[token["place"], f"{token['value']:+.4f}", token["text"]] for token in tokens]
        if cells:
            lines += ["", title, text_table([_("place"), _("change"), _("token")], cells)]
    return "\n".join([*lines, "", shown["figures"]])


def render_page(explanations: list[Explanation]) -> str:
    """Return the page as HTML, in which texts of strangers cannot act."""
    template = page_environment(Path(__file__).parent).get_template("explanation.html.jinja")
    shown = list(map(explanation_shown, explanations))
    return template.render(page_title=shown[0]["heading"], what=shown[0]["what"], explanations=shown)
