"""A run, its export to ONNX and its explanation decide alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.api import load
from app.explanation.explanation import ExplainedModel, Explanation, explain
from tests.verbs import export


def check_decided_alike(run: Path, folder: Path, texts: list[str]) -> Explanation:
    """Export a run to `folder` and compare the answers on `texts`; return the explanation of the first."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    assert export([str(run), "--output", str(folder)]) == 0
    answers = load(run).predict(texts).tolist()
    assert load(folder).predict(texts).tolist() == answers
    [found] = explain(ExplainedModel(run, "cpu"), (texts[0],), draws=20)
    assert found.label_names[found.label] == answers[0]
    return found
