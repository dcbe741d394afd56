"""Rows with labels -> predictions, and the report on them: how good is a model on other rows?"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ..data.near_copies import is_near_copy
from ..data.rows import Row
from ..errors import InputError, shorten
from ..report.bootstrap import all_metrics
from ..report.page import PageContent, render_page
from ..report.text import calibration_effect, cost_of_length, readings_of, report_text
from ..runtime.disk import whole_files, write_json, write_text
from .open_model import OpenedModel
from .output import AddedColumns, write_csv, written
from .predictor import CHUNK_ROWS, Prediction
from .sources import Source, as_text

UNFINISHED = ".unfinished"
# What is odd about a row, given its evidence
MARKS = {
    "unsupported": "right answers whose nearest training rows all have other labels",
    "mend": "errors with a near copy in train that has another label: one of the two labels is wrong",
}
MAX_EXAMPLES = 10  # of each mark


def check_report_folder(path: str) -> Path:
    """Return the folder of a report; raises InputError for one that has files, or cannot be made."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A report that was killed leaves its unfinished files
        is_empty = {entry.name for entry in os.scandir(folder)} <= {UNFINISHED}
    except OSError as error:
        raise InputError(f"--report {path}: the folder cannot be made: {error.strerror}") from error
    if not is_empty:
        raise InputError(
            f"--report {path}: an empty or a new folder is needed, found files; choose another name"
        )
    return folder


def unknown_token_id(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token that stands for unknown characters, None for a tokenizer without one."""
    model = json.loads(tokenizer.to_str())["model"]
    # Of a Unigram tokenizer; the others have the token's name
    if "unk_id" in model:
        return model["unk_id"]
    name = model.get("unk_token")
    return None if name is None else tokenizer.token_to_id(name)


def report_on(
    opened: OpenedModel,
    rows: Iterable[Row],
    source: Source,
    folder: Path,
    threshold: float | None,
    on_batch: Callable[[int], None],
) -> str:
    """Classify rows with labels; write predictions.csv, report.html, report.txt and report.json into a
    folder, all of them or none, and return the text. The page shows probabilities before and after the
    temperature, if there is one. Raises InputError for a label that the model does not have, TrainingError
    where the files cannot be written."""
    predictor, task = opened.predictor, opened.predictor.task
    unknown_id, kept = unknown_token_id(predictor.tokenizer), defaultdict(list)

    known: dict[str, Any] = {}  # labels by their texts

    def predictions() -> Iterator[Prediction]:
        """Yield a prediction for each row, and keep what the report needs."""
        remaining = iter(rows)
        while chunk := list(islice(remaining, CHUNK_ROWS)):
            for row in chunk:
                if row.label not in known:
                    if unknown := task.form.unknown(row.label, task.label_names):
                        raise InputError(
                            f"{source.name}, {source.place} {row.line}: the model has no label {unknown}; "
                            "fix the row, or set --label_column"
                        )
                    known[row.label] = task.form.of_texts([row.label], task.label_names)[0]
                kept["labels"].append(known[row.label])
                kept["places"].append(f"{source.name}, {source.place} {row.line}")
                kept["texts"].append(row.text + ("" if row.pair is None else f" ⟷ {row.pair}"))
            tokens = predictor.tokenize(chunk)
            logits = predictor.logits(tokens, on_batch)
            windows = None if tokens.window_ends is None else np.array(list(map(len, tokens.window_ends)))
            kept["logits"].append(logits)
            kept["lengths"] += map(len, tokens.rows)
            kept["unknown"] += [float((ids == unknown_id).mean()) for ids in tokens.rows]
            kept["readings"].append(readings_of(tokens.cut, windows))
            found = predictor.predictions(chunk, logits)
            kept["answers"] += [one.answer for one in found]
            kept["evidence"] += [one.beside.get("evidence", []) for one in found]
            yield from found

    with written(f"--report {folder}"), whole_files(folder / UNFINISHED, folder) as aside:
        with (aside / "predictions.csv").open("w", encoding="utf-8", newline="") as file:
            added = AddedColumns(task, source.names, threshold, evidence=predictor.evidence)
            write_csv(file, source, added, predictions())
        labels, logits = np.array(kept["labels"]), np.concatenate(kept["logits"])
        readings = np.concatenate(kept["readings"])
        title = f"Report on {source.name}: {len(labels):,} rows, model {opened.folder}"
        scores = task.score(labels, logits)
        metrics = all_metrics(task, scores)
        if effect := calibration_effect(task, labels, logits, "these rows"):
            metrics["calibration"] = task.state() | effect
        if long := cost_of_length(readings, scores.correct, predictor.long.way, predictor.max_length):
            metrics["long_texts"] = long
        text = report_text(task, metrics, {}, title)
        if predictor.evidence:
            given = map(task.answer, labels)
            said = kept["places"], kept["texts"], given, kept["answers"], kept["evidence"]
            metrics["evidence"], lines = marked_rows(zip(*said, strict=True))
            text += f"\n\n{lines}"
        page = PageContent(
            title,
            task,
            scores,
            metrics,
            calibrated=task.score(labels, logits, calibrated=True) if task.fitted else None,
            text=kept["texts"].__getitem__,
            where=kept["places"].__getitem__,
            lengths=np.array(kept["lengths"]),
            unknown=None if unknown_id is None else np.array(kept["unknown"]),
            readings=readings,
            evidence=kept["evidence"].__getitem__,
        )
        write_text(aside / "report.html", render_page(page))
        write_text(aside / "report.txt", text + "\n")
        write_json(aside / "report.json", {"input": source.name, "model": str(opened.folder)} | metrics)
    return text


def mark_of(text: str, given: str | list[str], answer: str | list[str], evidence: list[dict]) -> str | None:
    """Return what is odd about a row with the label `given`, a key of `MARKS`, or None."""
    others = [row["text"] for row in evidence if row["label"] != given]
    if answer == given:
        return "unsupported" if evidence and len(others) == len(evidence) else None
    return "mend" if any(is_near_copy(other, text) for other in others) else None


def marked_rows(rows: Iterable[tuple[str, str, Any, Any, list[dict]]]) -> tuple[dict[str, Any], str]:
    """Return how many of some rows have each mark, and the first of them, for JSON and for people; a row is
    its place and text, its label, the answer, and its evidence."""
    marked: dict[str, Any] = {name: {"rows": 0, "examples": []} for name in MARKS}
    shown: dict[str, list[str]] = {name: [] for name in MARKS}
    for where, text, given, answer, evidence in rows:
        if (name := mark_of(text, given, answer, evidence)) is None:
            continue
        marked[name]["rows"] += 1
        if marked[name]["rows"] > MAX_EXAMPLES:
            continue
        example = {"where": where, "text": text, "label": given, "predicted": answer}
        marked[name]["examples"].append(example | {"evidence": evidence})
        first = evidence[0]
        similar = f"{as_text(first['label'])}, {first['similarity']:.4f}"
        shown[name] += [
            f"  {where} ({as_text(given)}): {shorten(text, 60)}",
            f"    {first['where']} ({similar}): {shorten(first['text'], 60)}",
        ]
    parts = ([f"{marked[name]['rows']:,} {words}", *shown[name]] for name, words in MARKS.items())
    return marked, "\n".join(line for lines in parts for line in lines)
