"""The training rows whose texts are most like a text: the evidence for its label."""

from collections.abc import Iterable, Sequence
from typing import Any

from ..data.near_copies import is_near_copy
from ..data.rows import Row
from ..errors import shorten
from .input_columns import as_text
from .open_model import OpenedModel
from .run_vectors import RunVectors

# What is odd about a row, given its evidence
MARKS = {
    "unsupported": "right answers whose nearest training rows all have other labels",
    "mend": "errors with a near copy in train that has another label: one of the two labels is wrong",
}
MAX_EXAMPLES = 10


class NearestRows:
    """Finds the training rows of a run that are nearest to rows, by the vectors of their texts: `count` of
    them, unless it is asked for another number. `sample` has the columns, with values of their types.

    Raises InputError for a model that is no run, for an exported one, and for data that is gone.
    """

    def __init__(self, opened: OpenedModel, count: int = 1) -> None:
        self.vectors = RunVectors(opened, "--evidence")
        self.task, self.count = opened.predictor.task, count
        self.split = self.vectors.dataset.splits["train"]
        self.known = self.vectors.of_split(self.split)
        self.sample: dict[str, Any] = {"support": 0, "evidence": self.described([[1.0]], [[0]])[0]}

    def find(self, rows: Sequence[Row], answers: Sequence, count: int | None = None) -> list[dict[str, Any]]:
        """Return for each row `evidence`, its nearest training rows, and `support`, how many agree."""
        from ..vectors.text_vectors import nearest

        nearest_rows = self.described(*nearest(self.known, self.vectors.of(rows), count or self.count))
        return [
            {"support": sum(one["label"] == answer for one in evidence), "evidence": evidence}
            for evidence, answer in zip(nearest_rows, answers, strict=True)
        ]

    def described(self, similarities: Sequence, positions: Sequence) -> list[list[dict[str, Any]]]:
        """Return label, similarity, text and place of the training rows at `positions` of train."""
        table, rows, labels = self.split.table, self.split.rows, self.split.labels

        def one(similarity: float, at: int) -> dict[str, Any]:
            pair = {"text_pair": table.pair(rows[at])} if table.has_pairs else {}
            place = {"label": self.task.answer(labels[at]), "similarity": round(float(similarity), 4)}
            return place | {"text": table.text(rows[at])} | pair | {"where": table.where(rows[at])}

        return [list(map(one, *of_row)) for of_row in zip(similarities, positions, strict=True)]


def mark_of(text: str, given: str | list[str], answer: str | list[str], evidence: list[dict]) -> str | None:
    """Return what is odd about a row with the label `given`, a key of `MARKS`, or None."""
    if answer == given:
        return "unsupported" if evidence and all(row["label"] != given for row in evidence) else None
    others = [row["text"] for row in evidence if row["label"] != given]
    return "mend" if any(is_near_copy(other, text) for other in others) else None


def marked_rows(rows: Iterable[tuple[str, str, Any, Any, list[dict]]]) -> dict[str, Any]:
    """Return how many of some rows have each mark, and the first of them, for JSON; a row is its place and
    text, its label, the answer, and its evidence."""
    marked: dict[str, Any] = {name: {"rows": 0, "examples": []} for name in MARKS}
    for where, text, given, answer, evidence in rows:
        name = mark_of(text, given, answer, evidence)
        if name is None:
            continue
        marked[name]["rows"] += 1
        if len(marked[name]["examples"]) < MAX_EXAMPLES:
            example = {"where": where, "text": text, "label": given, "predicted": answer}
            marked[name]["examples"].append(example | {"evidence": evidence})
    return marked


def render_marked(marked: dict[str, Any]) -> str:
    """Return lines for people, of `marked_rows`."""
    lines = []
    for name, words in MARKS.items():
        lines.append(f"{marked[name]['rows']:,} {words}")
        for example in marked[name]["examples"]:
            nearest = example["evidence"][0]
            lines.append(
                f"  {example['where']} ({as_text(example['label'])}): {shorten(example['text'], 60)}"
            )
            lines.append(
                f"    {nearest['where']} ({as_text(nearest['label'])}, {nearest['similarity']:.4f}): "
                f"{shorten(nearest['text'], 60)}"
            )
    return "\n".join(lines)
