"""Labels rows, such as those that `suggest` wrote, with a large language model.

It stands behind any server that speaks OpenAI's chat completions API: vLLM, SGLang, Ollama, llama.cpp and
most services. Some lines, to be changed: above all `PROMPT`.

pip install -r requirements/llm.txt -c constraints.txt
python examples/label_with_llm.py next.csv llm.csv --url http://127.0.0.1:8000/v1 --model Qwen3-8B --votes 3
python examples/label_with_llm.py test.csv taught.csv --url http://127.0.0.1:8000/v1 --model Qwen3-8B \
    --labels '好评,差评' --column teacher_label --budget 500

The API key is read from the environment variable OPENAI_API_KEY; without it none is sent.

Each row is asked --votes times. The answers that are labels stand in the column `label`, joined as
好评|好评|差评. An answer that is no label is no vote: it is counted, reported at the end, and kept with all
others in llm.csv.answers.jsonl. A row without any vote has an empty cell.

Each answer is on the disk before the next one is asked for. The same command continues where it stopped: at
the budget of calls, at Ctrl-C, or because the server was gone. Only files that it began are changed.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import hashlib
import json
import os
import random
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# The words of the model's task. Say here what your labels mean: that is worth more than a larger model.
PROMPT = """把下面的文本归入一个类别。只回答类别的名称，不要解释。

类别：
{labels}

文本：
{text}"""
KEY_VARIABLE = "OPENAI_API_KEY"  # an argument would be seen in the list of processes
VOTE_SEPARATOR = "|"
CALLS_AT_ONCE = 8
TIMEOUT_SECONDS = 120
MAX_TRIES = 6  # of one call
LONGEST_WAIT_SECONDS = 60  # between two tries, where the server does not ask for a longer one
RETRIED_STATUSES = (408, 409, 425, 429)  # and all from 500 on
REFUSED_STATUSES = (400, 422)  # some servers answer so to a text that they do not want
LONGEST_ASKED_WAIT_SECONDS = 300  # a server that asks for a longer one has a quota of hours
GUESS_COLUMNS = ("label", "probability", "most_probable")  # of suggest, beside p_<label>


class Stopped(Exception):
    """The command ends before all rows are labelled; it says why."""


def read_rows(path: Path) -> list[list[str]]:
    """Return all rows of a CSV file, none where there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file, strict=True))


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns of a CSV file, and its rows."""
    rows = read_rows(path)
    if len(rows) < 2:
        raise SystemExit(
            f"error: {path}: a CSV file with a header and rows is needed, found {len(rows)} rows"
        )
    names = rows[0]
    if len(set(names)) < len(names):
        raise SystemExit(f"error: {path}: the columns must have different names, found {names}")
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(names):
            raise SystemExit(f"error: {path}, row {number}: {len(names)} fields are needed, found {len(row)}")
    return names, rows[1:]


def has_guess_twice(names: list[str], rows: list[list[str]]) -> bool:
    """Return whether the columns label and predicted_label are both the guess of `suggest`, which writes it
    so where the pool has no column of labels: no person has put another label there."""
    if "label" not in names or "predicted_label" not in names:
        return False
    label = names.index("label")
    guess = names.index("predicted_label")
    return all(row[label] == row[guess] for row in rows)


def kept_columns(path: Path, names: list[str], rows: list[list[str]], column: str) -> list[str]:
    """Return the columns of the file that the new one has too: all but the guess of `suggest`."""
    probabilities = [name for name in names if name.startswith("p_")]
    has_guess = bool(probabilities) or "most_probable" in names
    if has_guess and "labels" in names:
        raise SystemExit(f"error: {path} is for several labels a row; this example asks for one")
    dropped = set()
    if has_guess:
        dropped.update(probabilities)
        for name in GUESS_COLUMNS:
            # A column of the pool that has such a name keeps it
            added_name = f"predicted_{name}"
            dropped.add(added_name if added_name in names else name)
        if has_guess_twice(names, rows):
            dropped.add("label")
    kept = [name for name in names if name not in dropped]
    if column in kept:
        raise SystemExit(
            f"error: {path} has a column {column} that suggest did not write; name another one, such as "
            "--column teacher_label"
        )
    return kept


def labels_of_columns(path: Path, names: list[str]) -> list[str]:
    """Return the labels that the columns p_<label> of `suggest` name."""
    labels = [name.removeprefix("p_") for name in names if name.startswith("p_")]
    # In a hierarchy, columns such as p_组织关系/* are not labels
    has_upper_levels = any(label.endswith("*") for label in labels)
    if len(labels) < 2 or has_upper_levels:
        raise SystemExit(
            f"error: {path} has no columns p_<label> for labels alone; name the labels, for instance "
            "--labels '好评,差评'"
        )
    return labels


def label_in(answer: str | None, labels: Sequence[str]) -> str | None:
    """Return the label that an answer is, None where it is none. Quotes and a full stop around it do not
    count, and neither does what a model thinks aloud before it; nothing is guessed."""
    if answer is None:
        return None
    text = answer.rpartition("</think>")[2].strip()
    for candidate in (text, text.strip("\"'`“”‘’「」《》*。. \n")):
        if candidate in labels:
            return candidate
    return None


class AnswersFile:
    """All answers, one JSON object a line; the first line says which job they belong to.

    A line is on the disk when `add` returns. What a killed process left of its last line is cut off. Two
    processes cannot have the same file open.
    """

    def __init__(self, path: Path, job: dict[str, Any]) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit(f"error: {path}: another process writes it; wait for its end") from None
        self._file.seek(0)
        content = self._file.read()
        complete, _newline, torn = content.rpartition(b"\n")
        if torn:
            self._file.truncate(len(content) - len(torn))
        records = [json.loads(line) for line in complete.splitlines()]
        if not records:
            self._append(job)
            records = [job]
        if records[0] != job:
            differing = [key for key in job if records[0].get(key) != job[key]]
            raise SystemExit(
                f"error: {path} has the answers of another job ({', '.join(differing)} differ); repeat its "
                "command, or choose another name"
            )
        self.answers: dict[int, list[dict]] = defaultdict(list)
        for record in records[1:]:
            self.answers[record["row"]].append(record)

    def _append(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def add(self, record: dict[str, Any]) -> None:
        with self._lock:
            self._append(record)
            self.answers[record["row"]].append(record)


class Server:
    """Asks a model for one label at a time, from several threads; counts each request in `num_calls`."""

    def __init__(self, args: argparse.Namespace, has_answered: bool) -> None:
        import httpx2

        self.httpx2 = httpx2
        self.args = args
        self.num_calls = 0
        self.has_answered = has_answered
        self.stop = threading.Event()
        self.problem = "interrupted"
        self._lock = threading.Lock()
        headers = {}
        if os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {os.environ[KEY_VARIABLE]}"
        self._client = httpx2.Client(headers=headers, timeout=TIMEOUT_SECONDS)
        self._url = f"{args.url.rstrip('/')}/chat/completions"

    def ask(self, prompt: str) -> dict[str, Any]:
        """Return the answer to a prompt as {"answer": text}, or {"refused": why}. Raises Stopped at the end
        of the budget, and where the server refuses all texts or gives no answer in some tries."""
        problem = ""
        asked_wait_seconds = 0.0
        for number in range(MAX_TRIES):
            if number:
                back_off_seconds = min(LONGEST_WAIT_SECONDS, 2 ** (number - 1)) * random.uniform(0.5, 1)
                self.stop.wait(max(back_off_seconds, asked_wait_seconds))
            self.check_goes_on()
            try:
                response = self._post(prompt)
            except self.httpx2.TransportError as error:
                problem = repr(error)
                continue
            reply = self._reply_of(response)
            if reply is not None:
                return reply
            problem = f"status {response.status_code}: {response.text[:300]}"
            asked_wait_seconds = retry_after_seconds(response.headers)
            if asked_wait_seconds > LONGEST_ASKED_WAIT_SECONDS:
                break
        raise self.stopped(f"{self._url} gave no answer; the last try: {problem}")

    def check_goes_on(self) -> None:
        """Raise Stopped where no more calls may be made."""
        if self.stop.is_set():
            raise Stopped(self.problem)

    def stopped(self, problem: str) -> Stopped:
        """Return the error of a problem that all rows have, and let no other call begin."""
        with self._lock:
            if not self.stop.is_set():
                self.problem = problem
                self.stop.set()
        return Stopped(self.problem)

    def _reply_of(self, response: Any) -> dict[str, Any] | None:
        """Return what `ask` does, None where another try may help."""
        status = response.status_code
        if status == 200:
            try:
                answer = response.json()["choices"][0]["message"]["content"]
            except (ValueError, LookupError, TypeError):
                return None
            self.has_answered = True
            return {"answer": answer}
        if status >= 500 or status in RETRIED_STATUSES:
            return None
        problem = f"status {status}: {response.text[:300]}"
        # Where the server has answered others, it is this text that it does not want
        if status in REFUSED_STATUSES and self.has_answered:
            return {"refused": problem}
        raise self.stopped(f"{self._url} refuses: {problem}")

    def _post(self, prompt: str) -> Any:
        with self._lock:
            is_allowed = self.num_calls < self.args.budget
            self.num_calls += is_allowed
        if not is_allowed:
            raise self.stopped(f"the budget of {self.args.budget:,} calls is used (--budget)")
        body = {
            "model": self.args.model,
            "messages": [{"role": "user", "content": prompt}],
            # Votes that must differ where the model is unsure need chance
            "temperature": 0 if self.args.votes == 1 else 1,
        }
        return self._client.post(self._url, json=body)


def retry_after_seconds(headers: Any) -> float:
    """Return how long a server asks to wait, 0 where it does not say it in seconds."""
    value = headers.get("retry-after", "")
    return float(value) if value.isdecimal() else 0.0


class LabelledFile:
    """The new CSV file: rows of the old one with their votes, appended in order. `num_rows` are there."""

    def __init__(self, path: Path, names: list[str], rows: list[list[str]], column: str) -> None:
        self.path = path
        expected_rows = [[*names, column], *rows]
        num_written = 0
        try:
            for row in read_rows(path):
                if row[:-1] != expected_rows[num_written][: len(names)]:
                    raise ValueError("it is another row, or incomplete")
                num_written += 1
            if num_written and not path.read_bytes().endswith(b"\n"):
                raise ValueError("the last row has no end")
        except (csv.Error, ValueError, IndexError) as error:
            raise SystemExit(
                f"error: {path}, row {num_written}: the rows of the input are needed, in its order, but "
                f"{error}; move the file away, and the same command writes it again from the answers"
            ) from None
        self._file = path.open("a", encoding="utf-8-sig", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        if not num_written:
            self._append(expected_rows[0])
        self.num_rows = max(0, num_written - 1)

    def _append(self, row: list[str]) -> None:
        self._writer.writerow(row)
        self._file.flush()
        os.fsync(self._file.fileno())

    def add(self, row: list[str], votes: list[str]) -> None:
        self._append([*row, VOTE_SEPARATOR.join(votes)])
        self.num_rows += 1


def label_rows(
    prompts: list[str], rows: list[list[str]], server: Server, answers: AnswersFile, target: LabelledFile
) -> None:
    """Ask for the answers that are missing, and append each row when all before it are complete. Raises
    Stopped where some answers could not be got; those that came are kept."""
    from tqdm import tqdm

    labels = server.args.labels
    wanted = server.args.votes

    def ask_about(row: int) -> None:
        while len(answers.answers[row]) < wanted:
            reply = server.ask(prompts[row])
            label = label_in(reply.get("answer"), labels)
            answers.add({"row": row, "label": label} | reply)

    first_row = target.num_rows
    with (
        ThreadPoolExecutor(CALLS_AT_ONCE) as pool,
        tqdm(total=len(rows), initial=first_row, unit=" rows", disable=None) as bar,
    ):
        try:
            futures = [pool.submit(ask_about, row) for row in range(first_row, len(rows))]
            for row, future in enumerate(futures, first_row):
                future.result()
                votes = [record["label"] for record in answers.answers[row] if record["label"]]
                target.add(rows[row], votes)
                bar.update()
        except BaseException:
            # Calls that are under way are waited for, and their answers kept
            server.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def summary(num_rows: int, answers: AnswersFile, target: LabelledFile, num_calls: int) -> str:
    """Return what is there now, for people."""
    num_answers = 0
    num_without_label = 0
    num_empty_rows = 0
    for row, records in answers.answers.items():
        has_label = [record["label"] is not None for record in records]
        num_answers += len(records)
        num_without_label += has_label.count(False)
        if row < target.num_rows and not any(has_label):
            num_empty_rows += 1
    lines = [
        f"{target.path}: {target.num_rows:,} of {num_rows:,} rows; {num_calls:,} calls now",
        f"{answers.path}: {num_answers:,} answers, of which {num_without_label:,} are no label",
    ]
    if num_empty_rows:
        lines.append(f"{num_empty_rows:,} rows have no vote: label them, or remove them")
    return "\n".join(lines)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("input", type=Path, help="a CSV file with a header, such as suggest writes")
    add("output", type=Path, help="the CSV file to write, or to continue; answers stand beside it")
    add("--url", required=True, help="the address of the API, up to and with /v1")
    add("--model", required=True, help="the name of the model, as the server has it")
    labels = "the labels, with commas between them (default: those of the columns p_<label>)"
    add("--labels", metavar="A,B", help=labels)
    add("--text_column", default="text", help="default: text; where there is text_pair, it is asked too")
    add("--column", default="label", help="the new column (default: label)")
    add("--votes", type=int, default=1, metavar="K", help="answers for each row (default: 1)")
    add("--budget", type=int, default=1000, metavar="N", help="most calls, tries again too (default: 1000)")
    args = parser.parse_args(argv)
    if args.votes < 1 or args.budget < 1:
        parser.error("--votes and --budget must be at least 1")
    if args.output.suffix.lower() != ".csv":
        parser.error(f"the name of the output must end in .csv, found {args.output}")
    if not args.url.startswith(("http://", "https://")):
        parser.error(f"--url must begin with http:// or https://, found {args.url}")
    return args


def main() -> int:
    """Label the rows; return 0 where all have their answers, 1 where not, 130 after Ctrl-C."""
    args = parse()
    content = args.input.read_bytes()
    names, rows = read_table(args.input)
    if args.text_column not in names:
        raise SystemExit(f"error: {args.input}: there is no column {args.text_column}; set --text_column")
    if args.labels is None:
        args.labels = labels_of_columns(args.input, names)
    else:
        args.labels = [label.strip() for label in args.labels.split(",")]
    for label in args.labels:
        if not label or VOTE_SEPARATOR in label:
            raise SystemExit(f"error: a label must not be empty or have {VOTE_SEPARATOR}, found {label!r}")
    kept = kept_columns(args.input, names, rows, args.column)
    answers_path = Path(f"{args.output}.answers.jsonl")
    if args.output.exists() and not answers_path.exists():
        raise SystemExit(f"error: {args.output} exists, without {answers_path}; choose another name")
    job = {
        "input_sha256": hashlib.sha256(content).hexdigest(),
        "model": args.model,
        "labels": args.labels,
        "text_column": args.text_column,
        "column": args.column,
        "votes": args.votes,
        "prompt": PROMPT,
    }
    label_lines = "\n".join(f"- {label}" for label in args.labels)
    prompts = []
    kept_rows = []
    for row in rows:
        cells = dict(zip(names, row, strict=True))
        text = cells[args.text_column]
        if cells.get("text_pair"):
            text = f"{text}\n\n第二个文本：\n{cells['text_pair']}"
        prompts.append(PROMPT.format(labels=label_lines, text=text))
        kept_rows.append([cells[name] for name in kept])
    answers = AnswersFile(answers_path, job)
    target = LabelledFile(args.output, kept, kept_rows, args.column)
    has_answered = any("answer" in record for records in answers.answers.values() for record in records)
    server = Server(args, has_answered)
    status = 0
    message = ""
    try:
        label_rows(prompts, kept_rows, server, answers, target)
    except Stopped as error:
        status = 1
        message = f"stopped: {error}; the same command continues"
    except KeyboardInterrupt:
        status = 130
        message = "stopped by Ctrl-C; the same command continues"
    print(summary(len(rows), answers, target, server.num_calls))
    if message:
        print(message, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
