"""The notebook, executed from its first cell to its last: python -m pytest -m slow
tests/documents/test_notebook.py"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "from_python.ipynb"
PYTHON_PAGES = ("docs/python.md", "docs/python.zh-CN.md")


@pytest.mark.slow
def test_the_notebook_runs_and_its_model_has_learned(monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="needs requirements/notebook.txt")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    nbclient.NotebookClient(notebook, timeout=400, kernel_name="python3", resources=resources).execute()
    results = {
        cell["source"].splitlines()[-1]: output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "execute_result"
    }
    assert results["len(texts), len(test_texts)"] == "(600, 302)"
    assert float(results["accuracy"]) > 0.3, "six classes; chance is about 0.2"
    assert results["model.predict(new)"].startswith("array(['")
    assert (
        "mean_test_score"
        in results['pd.DataFrame(search.cv_results_)[["param_learning_rate", "mean_test_score"]]']
    )


def test_the_notebook_is_kept_without_outputs():
    nbformat = pytest.importorskip("nbformat", reason="needs requirements/notebook.txt")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(codes) == 5
    assert [cell for cell in codes if cell.outputs or cell.execution_count] == []


@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_the_python_of_the_pages_is_python_and_names_what_there_is(page):
    import chinese_text_classifier

    blocks = (ROOT / page).read_text(encoding="utf-8").split("```python\n")[1:]
    assert len(blocks) >= 3
    parameters = chinese_text_classifier.TextClassifier().get_params()
    for block in blocks:
        tree = ast.parse(block.split("```")[0])
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "chinese_text_classifier":
                assert {alias.name for alias in node.names} <= set(chinese_text_classifier.__all__)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "TextClassifier":
                assert {keyword.arg for keyword in node.keywords} <= set(parameters)
