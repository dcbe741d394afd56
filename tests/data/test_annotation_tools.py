"""Label issues to annotation tools and back: python -m pytest tests/data/test_annotation_tools.py"""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from app.data.annotation_export import label_studio_interface
from app.data.readers import ReadOptions
from app.data.relabel import read_fixes
from tests.verbs import labels as main

ISSUES = """rank,file,line,row_id,text,given,suggested,score,flagged,text_hash,label
1,a.tsv,7,5,"甲, ""乙""
<b>",A,B,0.010000,yes,h00000000000000a1,
2,a.tsv,3,1,丙,B,A,0.200000,no,h00000000000000b2,
3,a.tsv,9,7,丁,A,C&,0.300000,no,h00000000000000c3,
"""


@pytest.fixture
def issues(write) -> Path:
    return write("label_issues.csv", ISSUES)


def test_label_studio_there_and_back(issues, tmp_path, write, capsys):
    """Its JSON: the first row is changed, the second confirmed, the third cancelled."""
    target = tmp_path / "tasks.json"
    assert main(["export", str(issues), str(target), "--to", "label-studio"]) == 0
    said = capsys.readouterr().out
    interface = ElementTree.fromstring(said[said.index("<View>") :])
    assert [choice.get("value") for choice in interface.iter("Choice")] == ["A", "B", "C&"]
    tasks = json.loads(target.read_text(encoding="utf-8"))
    assert [task["data"]["text"] for task in tasks] == ['甲, "乙"\n<b>', "丙", "丁"]
    (prediction,) = tasks[0]["predictions"]
    assert prediction["score"] == pytest.approx(0.99)
    assert prediction["result"][0]["value"] == {"choices": ["B"]}
    assert (prediction["result"][0]["from_name"], prediction["result"][0]["to_name"]) == ("label", "text")
    for task, label, cancelled in zip(tasks, ("C&", "B", "C&"), (False, False, True), strict=True):
        result = [{**task["predictions"][0]["result"][0], "value": {"choices": [label]}}]
        task |= {"id": 1, "annotations": [{"id": 2, "was_cancelled": cancelled, "result": result}]}
    fixes = tmp_path / "fixes.csv"
    assert main(["import", str(write("decided.json", json.dumps(tasks))), str(fixes)]) == 0
    assert "1 changed labels" in (said := capsys.readouterr().out)
    assert "1 confirmed, 1 without a decision" in said
    found = read_fixes(fixes)
    assert (found.hashes.tolist(), found.labels) == ([0xA1], ["C&"])


def test_json_min_of_label_studio(tmp_path, write):
    rows = [
        {"text": "丙", "given": "B", "text_hash": "h00000000000000b2", "label": "A", "id": 3, "annotator": 1},
        {
            "text": "丁",
            "given": "A",
            "text_hash": "h00000000000000c3",
            "label": {"choices": ["A", "C&"]},
            "id": 4,
        },
    ]
    fixes = tmp_path / "fixes.csv"
    assert main(["import", str(write("min.json", json.dumps(rows))), str(fixes)]) == 0
    assert read_fixes(fixes).labels == ["A"]


def test_doccano_there_and_back(issues, tmp_path, write, capsys):
    target = tmp_path / "tasks.jsonl"
    assert main(["export", str(issues), str(target), "--to", "doccano", "--limit", "2"]) == 0
    rows = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert [row["label"] for row in rows] == [["A"], ["B"]]
    assert [row["suggested"] for row in rows] == ["B", "A"]
    unseen = tmp_path / "unseen.csv"
    assert main(["import", str(target), str(unseen)]) == 0
    assert read_fixes(unseen).labels == []
    meta = {"text_hash": rows[0]["text_hash"], "given": "A"}
    changed = [{"id": 1, "text": rows[0]["text"], "label": ["B"], "meta": meta}, {**rows[1], "label": []}]
    capsys.readouterr()
    decided = write("decided.jsonl", "".join(json.dumps(row) + "\n" for row in changed))
    assert main(["import", str(decided), str(tmp_path / "fixes.csv")]) == 0
    assert "1 changed labels" in (said := capsys.readouterr().out)
    assert "0 confirmed, 1 without a decision" in said
    assert read_fixes(tmp_path / "fixes.csv").hashes.tolist() == [0xA1]


SET_ISSUES = """rank,file,line,row_id,text,given,suggested,score,flagged,text_hash,label
1,a.jsonl,7,5,甲,"[""A"", ""C""]","[""B""]",0.010000,yes,h00000000000000a1,
2,a.jsonl,3,1,丙,[],"[""A""]",0.200000,no,h00000000000000b2,
3,a.jsonl,9,7,丁,"[""A""]",[],0.300000,no,h00000000000000c3,
4,a.jsonl,12,9,戊,"[""A""]","[""B""]",0.400000,no,h00000000000000d4,
5,a.jsonl,13,10,己,"[""A""]","[""B""]",0.500000,no,h00000000000000e5,
"""


def test_label_lists_to_label_studio_and_back(tmp_path, write, capsys):
    """The first set is changed, the second confirmed, the third is none, the fourth disputed, the fifth not
    looked at."""
    target = tmp_path / "tasks.json"
    assert main(["export", str(write("issues.csv", SET_ISSUES)), str(target), "--to", "label-studio"]) == 0
    said = capsys.readouterr().out
    interface = ElementTree.fromstring(said[said.index("<View>") :])
    assert [choice.get("value") for choice in interface.iter("Choice")] == ["A", "B", "C"]
    assert next(interface.iter("Choices")).get("choice") == "multiple"
    tasks = json.loads(target.read_text(encoding="utf-8"))
    assert tasks[0]["predictions"][0]["result"][0]["value"] == {"choices": ["B"]}
    assert tasks[2]["predictions"][0]["result"] == []
    decided = [[["C", "B"]], [[]], [[]], [["B"], ["A"]], []]
    for task, sets in zip(tasks, decided, strict=True):
        results = [[{"type": "choices", "value": {"choices": labels}}] if labels else [] for labels in sets]
        task["annotations"] = [{"id": 2, "was_cancelled": False, "result": result} for result in results]
    fixes = tmp_path / "fixes.csv"
    assert main(["import", str(write("decided.json", json.dumps(tasks))), str(fixes)]) == 0
    said = capsys.readouterr().out
    assert "2 changed labels" in said
    assert "1 confirmed, 1 without a decision, 1 left out because of several different decisions" in said
    found = read_fixes(fixes, ReadOptions(task="multi_label"))
    assert dict(zip(found.hashes.tolist(), found.labels, strict=True)) == {0xA1: '["B", "C"]', 0xC3: "[]"}


def test_label_lists_to_doccano_and_back(tmp_path, write, capsys):
    target = tmp_path / "tasks.jsonl"
    assert main(["export", str(write("issues.csv", SET_ISSUES)), str(target), "--to", "doccano"]) == 0
    rows = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert [row["label"] for row in rows] == [["A", "C"], [], ["A"], ["A"], ["A"]]
    unseen = tmp_path / "unseen.csv"
    assert main(["import", str(target), str(unseen)]) == 0
    assert "0 changed labels" in (said := capsys.readouterr().out)
    assert "4 confirmed, 1 without a decision" in said
    rows[0]["label"], rows[1]["label"], rows[3]["label"] = ["C"], ["B", "A"], []
    decided = write("decided.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert main(["import", str(decided), str(tmp_path / "fixes.csv")]) == 0
    found = read_fixes(tmp_path / "fixes.csv", ReadOptions(task="multi_label"))
    assert dict(zip(found.hashes.tolist(), found.labels, strict=True)) == {0xA1: '["C"]', 0xB2: '["A", "B"]'}


def test_a_label_cannot_leave_its_place_in_the_interface():
    hostile = '"/><Choice value="x"/> <script>'
    issue = {"text_pair": "甲", "given": hostile, "suggested": hostile}
    (choice,) = ElementTree.fromstring(label_studio_interface([issue])).iter("Choice")
    assert choice.get("value") == hostile


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "text,label\n甲,A\n",
            "or doccano (an object a line) is needed, found a file that begins with 't'",
        ),
        ("a.jsonl", '{"text": "甲", "label": [3]}\n', "a.jsonl, line 1: labels must be names, as in"),
        (
            "a.jsonl",
            '{"text": "甲", "annotations": [{"label": 2, "user": 1}]}\n',
            "export with the names of the labels, from doccano as JSONL",
        ),
        (
            "a.jsonl",
            '{"label": ["A"]}\n{"label": ["B"]}\n',
            "a.jsonl, line 1: a decided row needs its text_hash or text",
        ),
        (
            "a.json",
            '[{"text": "甲", "annotations": 5}]',
            "a.json, element 1: labels must be names, as in",
        ),
    ],
)
def test_what_is_no_export_is_refused(write, tmp_path, capsys, name, content, message):
    assert main(["import", str(write(name, content)), str(tmp_path / "fixes.csv")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "fixes.csv").exists()


def test_no_file_is_overwritten_and_other_csv_files_are_refused(issues, write, tmp_path, capsys):
    assert main(["export", str(issues), str(issues), "--to", "doccano"]) == 2
    assert "there is such a file" in capsys.readouterr().err
    assert issues.read_text(encoding="utf-8") == ISSUES
    other = write("other.csv", "text,label\n甲,A\n")
    assert main(["export", str(other), str(tmp_path / "x.json"), "--to", "doccano"]) == 2
    assert (
        "a label_issues.csv has the columns given, suggested, score, text_hash, found text, label"
        in capsys.readouterr().err
    )


def test_a_score_that_is_no_number_is_named_with_its_line_and_leaves_no_file(write, tmp_path, capsys):
    wrong = write("wrong.csv", ISSUES.replace("0.200000", "high"))
    target = tmp_path / "tasks.json"
    assert main(["export", str(wrong), str(target), "--to", "label-studio"]) == 2
    assert "wrong.csv, line 4: score must be a number, found 'high'" in capsys.readouterr().err
    assert not target.exists()
