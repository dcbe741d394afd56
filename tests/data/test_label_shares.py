"""Distributions of labels in place of labels: columns of probabilities, and votes."""

import json

import numpy as np
import pandas as pd
import pytest

from app.config.command_line import load_config
from app.data.label_shares import weighted_rows
from app.errors import InputError
from tests.verbs import spoken_in

SOFT = "text,label,probability,p_好,p_坏\n今天很好,好,0.9,0.9,0.1\n很差,坏,0.8,0.2,0.8\n还行,好,0.5,0.5,0.5\n"
GOLD = "text,label\n哈哈,坏\n嘻嘻,好\n"


def targets_of(dataset) -> list[list[float]]:
    return np.asarray(dataset.splits["train"].targets, np.float64).round(4).tolist()


def labels_of(dataset) -> list[str]:
    return [dataset.label_names[label] for label in dataset.splits["train"].labels]


@pytest.fixture
def two_files(opened, write):
    """Open two train files with these contents."""

    def open_two(first: str, second: str, ending: str = "csv", **settings):
        files = [str(write(f"first.{ending}", first)), str(write(f"second.{ending}", second))]
        return opened(train=files, **settings)

    return open_two


def test_probabilities_as_predict_writes_them_are_targets_and_the_label_is_the_most_probable(opened):
    dataset = opened("csv", train=SOFT)
    assert dataset.label_names == ["坏", "好"]
    assert labels_of(dataset) == ["好", "坏", "好"]
    assert targets_of(dataset) == [[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]]
    assert dataset.statistics["train"]["classes"] == {"坏": 1, "好": 2}
    assert dataset.splits["train"].targets.dtype == np.float32


def test_rows_with_labels_only_have_no_targets(opened):
    assert opened("csv", train=GOLD).splits["train"].targets is None


def test_files_with_and_without_distributions_are_mixed(two_files):
    dataset = two_files(GOLD, SOFT)
    assert labels_of(dataset) == ["坏", "好", "好", "坏", "好"]
    assert targets_of(dataset)[:3] == [[1, 0], [0, 1], [0.1, 0.9]]
    named = two_files("标题,标\n哈哈,坏\n嘻嘻,好\n", SOFT.replace("text", "标题"), label_column="标")
    assert targets_of(named) == targets_of(dataset)


def test_a_row_without_probabilities_has_its_label(opened):
    dataset = opened("csv", train=SOFT + "一般,坏,,,\n")
    assert targets_of(dataset)[3] == [1, 0]


def test_columns_of_probabilities_need_no_column_of_labels_and_no_usual_name_of_the_text(opened):
    rows = "".join(f"第{number}条评论很不错,0.{number},0.{10 - number}\n" for number in range(1, 10))
    dataset = opened("csv", train="评论文字,p_好,p_坏\n" + rows)
    assert targets_of(dataset)[0] == [0.9, 0.1]


def test_a_label_of_a_person_counts_before_the_probabilities_of_a_model(opened, report_of):
    """`predict` on rows with labels calls its own answer predicted_label; the setting says the same."""
    rows = "今天很好,坏,好,0.9,0.1\n很差,,坏,0.2,0.8\n还行,好,好,0.5,0.5\n"
    dataset = opened("csv", train="text,label,predicted_label,p_好,p_坏\n" + rows)
    assert labels_of(dataset) == ["坏", "坏", "好"]
    assert targets_of(dataset) == [[1, 0], [0.8, 0.2], [0, 1]]
    line = "1 row with probabilities as the target ('p_好', 'p_坏'), 2 rows with the label ('label')"
    report = spoken_in("en", report_of, dataset)
    assert line in report
    assert "A row with a label is trained on that" in report
    hard = opened("csv", train=SOFT, label_column="label")
    assert hard.splits["train"].targets is None
    assert labels_of(hard) == ["好", "坏", "好"]


def test_a_label_that_a_person_has_corrected_counts_before_the_probabilities(opened):
    """Of two classes the rarer one may be the answer from a lower probability on: that is no correction."""
    rows = "今天很好,坏,0.9,0.9,0.1\n很差,坏,0.3,0.7,0.3\n还行,好,0.6,0.6,0.4\n"
    dataset = opened("csv", train="text,label,probability,p_好,p_坏\n" + rows)
    assert targets_of(dataset) == [[1, 0], [0.3, 0.7], [0.4, 0.6]]
    without_answer = rows.replace(",0.9,0.9", ",0.9").replace(",0.3,0.7", ",0.7").replace(",0.6,0.6", ",0.6")
    dataset = opened("csv", train="text,label,p_好,p_坏\n" + without_answer)
    assert targets_of(dataset) == [[1, 0], [1, 0], [0.4, 0.6]]


def test_the_data_report_says_which_columns_are_what(opened, report_of, tmp_path):
    dataset = opened("csv", train=SOFT + "一般,坏,,,\n")
    english = spoken_in("en", report_of, dataset)
    assert "(text 'text', label 'label', probabilities 'p_好', 'p_坏'; not used: 'probability')" in english
    assert (
        f"{tmp_path}/train.csv: 3 rows with probabilities as the target ('p_好', 'p_坏'), 1 row with the "
        "label ('label'); the most probable label counts in splits and figures. 'label' is taken for the "
        "answer of the model; it counts where it is another label, or without probabilities"
    ) in english
    assert "最可能的标签" in spoken_in("zh", report_of, dataset)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("0.9,0.3", "line 4: the probabilities of a row must add up to 1, found 1.2 in p_好, p_坏"),
        ("1.2,-0.2", "line 4: a probability must be a number from 0 to 1, found '1.2' in p_好"),
        ("0.8,-0.1", "line 4: a probability must be a number from 0 to 1, found '-0.1' in p_坏"),
        ("nan,0.5", "line 4: a probability must be a number from 0 to 1, found 'nan' in p_好"),
        (",1", "line 4: a probability must be a number from 0 to 1, found '' in p_好"),
        ("高,0.5", "line 4: a probability must be a number from 0 to 1, found '高' in p_好"),
        (",", "line 4: a row needs a label or probabilities, found none"),
    ],
)
def test_rows_with_wrong_probabilities_are_invalid(opened, row, problem):
    content = f"text,p_好,p_坏\n很好,0.9,0.1\n很差,0.2,0.8\n还行,{row}\n"
    with pytest.raises(InputError, match=problem):
        opened("csv", train=content)
    dataset = opened("csv", train=content, on_bad_row="skip")
    assert targets_of(dataset) == [[0.1, 0.9], [0.8, 0.2]]


def test_rounded_probabilities_are_made_to_add_up_to_one(opened):
    dataset = opened("csv", train="text,p_a,p_b,p_c\n一,0.33,0.33,0.33\n二,1,0,0\n三,0,1,0\n四,0,0,1\n")
    assert targets_of(dataset)[0] == [0.3333, 0.3333, 0.3333]


def test_each_label_needs_a_column_of_probabilities(two_files, opened):
    with pytest.raises(InputError, match=r"second\.csv: each label .* none for 差评; add it"):
        two_files("text,label\n哈哈,差评\n嘻嘻,好\n", SOFT)
    with pytest.raises(
        InputError, match=r"must be that of a label of the data, found p_坏 \(labels: 好, 差\)"
    ):
        opened("csv", train=GOLD.replace("坏", "差"), dev=SOFT.replace("很差,坏,0.8,0.2,0.8\n", ""))


def test_columns_that_only_have_such_names_are_not_used(opened):
    dataset = opened("csv", train="text,label,p_id,p_name\n很好,好,3,小王\n很差,坏,9,小李\n")
    assert dataset.splits["train"].targets is None
    assert labels_of(dataset) == ["好", "坏"]


@pytest.mark.parametrize(("name", "settings"), [("p_ ", {}), ("p_-", {"label_hierarchy": "-"})])
def test_a_column_of_probabilities_has_the_name_of_a_label(opened, name, settings):
    if settings:
        settings["task"] = "single_path"
    rows = [{"text": text, "p_a-b": 1 - share, name: share} for text, share in (("一", 0.9), ("二", 0.2))]
    with pytest.raises(InputError, match=f"line 1: the name of a column .* found '{name.strip()}'; rename"):
        opened("jsonl", train="".join(json.dumps(row) + "\n" for row in rows), **settings)


def test_a_label_that_is_never_the_most_probable_one_can_be_learnt(opened):
    dataset = opened("csv", train="text,p_a,p_b,p_c\n一,0.6,0.3,0.1\n二,0.3,0.6,0.1\n")
    assert dataset.statistics["train"]["classes"] == {"a": 1, "b": 1, "c": 0}
    with pytest.raises(InputError, match="label 'c' is absent from train"):
        opened("csv", train="text,p_a,p_b,p_c\n一,0.6,0.4,0\n二,0.4,0.6,0\n")


def test_parquet_has_probabilities_too(opened, tmp_path):
    path = tmp_path / "soft.parquet"
    pd.DataFrame({"text": ["好", "坏"], "p_a": [0.9, 0.2], "p_b": [0.1, 0.8]}).to_parquet(path)
    assert targets_of(opened(train=str(path))) == [[0.9, 0.1], [0.2, 0.8]]


VOTES = "text,votes\n哈哈,坏|坏|好\n嘻嘻,好\n呵呵,好|坏\n"


def test_votes_are_shares(opened, report_of):
    dataset = opened("csv", train=VOTES, votes="votes", label_separator="|")
    assert labels_of(dataset) == ["坏", "好", "好"]
    assert targets_of(dataset) == [[0.6667, 0.3333], [0, 1], [0.5, 0.5]]
    assert "3 rows with the shares of votes as the target ('votes')" in spoken_in("en", report_of, dataset)


def test_a_row_has_a_label_or_votes_also_as_lists_in_json(opened):
    rows = [
        '{"text": "哈哈", "votes": ["坏", "坏", "好"]}',
        '{"text": "嘻嘻", "label": "好"}',
        '{"text": "呵呵", "label": "好", "votes": ["坏"]}',
    ]
    dataset = opened("jsonl", train="\n".join(rows) + "\n", votes="votes")
    assert labels_of(dataset) == ["坏", "好", "好"]
    assert targets_of(dataset) == [[0.6667, 0.3333], [0, 1], [0, 1]]


def test_a_row_without_any_vote_is_invalid(opened):
    for cell in ("[]", '""'):
        rows = f'{{"text": "哈哈", "votes": ["好"]}}\n{{"text": "嘻嘻", "votes": {cell}}}\n'
        with pytest.raises(InputError, match="line 2: a row needs a label or votes, found none"):
            opened("jsonl", train=rows, votes="votes")


def test_the_column_of_labels_may_have_the_votes(two_files):
    dataset = two_files(GOLD, VOTES.replace("votes", "label"), votes="label", label_separator="|")
    assert targets_of(dataset)[1:3] == [[0, 1], [0.6667, 0.3333]]


def test_files_with_and_without_votes_are_mixed(two_files):
    dataset = two_files(GOLD, VOTES, votes="votes", label_separator="|")
    assert targets_of(dataset)[1:3] == [[0, 1], [0.6667, 0.3333]]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"votes": "votes"}, r"line 2: cannot tell whether .* set --data\.label_separator '\|'"),
        ({"votes": "票"}, "data.votes must be a column of a file of data.train, .* no column '票'"),
        (
            {"votes": "votes", "label_separator": "|", "labels": ["好", "差"]},
            "line 2: unknown label '坏'.* among the votes",
        ),
    ],
)
def test_wrong_votes_are_refused(opened, settings, problem):
    content = VOTES
    if settings["votes"] == "票":
        content = GOLD
    with pytest.raises(InputError, match=problem):
        opened("csv", train=content, **settings)


def test_a_separator_of_one_label_needs_votes():
    words = ["--data.train", "a.csv", "--data.label_separator", "|"]
    with pytest.raises(
        InputError, match=r"left out unless data\.task is multi_label or .*data\.votes is set"
    ):
        load_config(words)
    assert load_config([*words, "--data.votes", "votes"]).data.label_separator == "|"


def test_probabilities_of_several_labels_need_not_add_up(opened):
    content = "text,p_好,p_坏\n很好,0.9,0.4\n很差,0.2,0.8\n还行,0.1,0\n"
    dataset = opened("csv", train=content, task="multi_label")
    assert targets_of(dataset) == [[0.4, 0.9], [0.8, 0.2], [0, 0.1]]
    assert dataset.splits["train"].labels.tolist() == [[0, 1], [1, 0], [0, 0]]


def test_votes_for_several_labels_are_lists_of_labels(opened):
    rows = [
        '{"text": "哈哈", "votes": [["坏", "a"], ["坏"], []]}',
        '{"text": "嘻嘻", "label": ["好", "a"]}',
        '{"text": "嘿嘿", "votes": [[], []]}',
    ]
    dataset = opened("jsonl", train="\n".join(rows) + "\n", votes="votes", task="multi_label")
    assert dataset.label_names == ["a", "坏", "好"]
    assert targets_of(dataset) == [[0.3333, 0.6667, 0], [1, 0, 1], [0, 0, 0]]
    with pytest.raises(
        InputError, match=r"must be a list of the labels of each vote, .*found \[\"a\", \"b\"\]"
    ):
        opened("jsonl", train='{"text": "哈", "votes": ["a", "b"]}\n', votes="votes", task="multi_label")


def test_ordered_labels_and_paths_have_distributions_too(opened):
    stars = opened("csv", train="text,p_1,p_2,p_3\n一,0.1,0.7,0.2\n二,1,0,0\n三,0,0,1\n", task="ordinal")
    assert targets_of(stars)[0] == [0.1, 0.7, 0.2]
    content = "text,p_体育-足球,p_财经-股票,p_体育-*,p_财经-*\n一,0.9,0.1,0.9,0.1\n二,0.2,0.8,0.2,0.8\n"
    paths = opened("csv", train=content, task="single_path", label_hierarchy="-")
    assert targets_of(paths) == [[0.9, 0.1], [0.2, 0.8]]


def test_a_corrected_label_takes_the_place_of_a_distribution(opened):
    dataset = opened("csv", train=SOFT, relabel="text,label\n很差,好\n")
    assert labels_of(dataset) == ["好", "好", "好"]
    assert targets_of(dataset)[1] == [0, 1]


def test_dev_and_test_have_the_most_probable_label(opened):
    dataset = opened("csv", train=GOLD, dev=SOFT)
    assert dataset.splits["dev"].labels.tolist() == [1, 0, 1]
    assert dataset.splits["dev"].targets is None


def test_distributions_as_rows_with_weights():
    rows, labels, weights = weighted_rows(np.array([[0.7, 0.3, 0], [0.005, 0, 0.995], [0, 1, 0]]))
    assert rows.tolist() == [0, 0, 1, 2]
    assert labels.tolist() == [0, 1, 2, 1]
    assert weights.tolist() == [0.7, 0.3, 1, 1]
