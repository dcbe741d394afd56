"""One sitting of labelling: which text a person gets next, what is done with each answer, and what is known
so far. The web server calls it; it knows nothing of the web."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from filelock import FileLock, Timeout

from ..config.schema import DataConfig
from ..config.shipped import E5_SMALL
from ..data.cache import content_key
from ..errors import InputError, TrainingError, excerpt, listed
from ..prediction.suggested_rows import choose_rows
from ..report.advised_commands import AdvisedCommands
from ..tasks import unordered_task
from ..tasks.task import Task
from .figures import agreement_of
from .label_file import Answer, LabelFile, LabelledText
from .learner import Learner
from .pool import Pool

logger = logging.getLogger(__name__)

TEST_SHARE = 0.1  # of the pool, kept apart from the first answer on; and of the answers
RANDOM_SHARE = 0.1  # of the training texts; the others are those of which the model is least sure
REPEAT_EVERY = 20  # texts shown to a person: one of them is a text that he has answered before
MIN_TEXTS_BETWEEN = 10  # answers between a text and its repetition
MAX_CANDIDATES = 5000  # texts of which the model says how sure it is, for each choice
LOCK_SECONDS = 1800  # a text that a person has not answered may be shown to others after this time


class Vectors(Protocol):
    """Where vectors come from: see `app/vectors/store.py`."""

    def chunks(
        self, texts: Sequence[tuple[str, ...]], should_stop: Callable[[], bool]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]: ...


@dataclass(frozen=True)
class SessionOptions:
    """How a session works. `has_several` labels may be given to a text. The `vectors` are those of `model`, a
    value of `model.name` for a training with the answers."""

    vectors: Vectors
    has_several: bool = False
    model: str = E5_SMALL
    cache_dir: str = DataConfig.cache_dir
    seed: int = 0


@dataclass(frozen=True)
class TextToLabel:
    """A text that a person is to label: its `number` in the pool, the `text`, the second text of a `pair` or
    None, and the `labels` that the person gave it before, where he has gone back. Nothing says that a text
    is shown again to see whether the person gives the same labels."""

    number: int
    text: str
    pair: str | None = None
    labels: tuple[str, ...] = ()


@dataclass
class _CurrentText:
    """A text that a person has before him."""

    number: int
    is_repeat: bool
    since: float
    is_back: bool = False


@dataclass
class _Person:
    """What a person has answered, in this order: the numbers of texts, and whether it was their repetition.
    `steps_back`: how many of these he has gone back from the last one."""

    history: list[tuple[int, bool]] = field(default_factory=list)
    current: _CurrentText | None = None
    back: _CurrentText | None = None
    steps_back: int = 0

    @property
    def num_repeats(self) -> int:
        return sum(is_repeat for _number, is_repeat in self.history)


class LabelSession:
    """Labels a pool, from the first text or from where the file `output` ends. It may be called from several
    threads; one lock inside. `with` it, or `close` it at the end.

    The names of labels are those given and those in the file. Raises InputError for names that cannot be,
    for a file of another pool, and where another session writes to the file.
    """

    def __init__(self, pool: Pool, label_names: list[str], output: Path, options: SessionOptions) -> None:
        self.options = options
        self.label_names: list[str] = []
        self._lock = threading.RLock()
        self._file = LabelFile(output, pool, options.has_several)
        self._pool = pool
        self._texts = list(pool.texts)
        self._cells = list(pool.cells)
        self._number_of_text = {parts: number for number, parts in enumerate(self._texts)}
        self._answers: dict[int, Answer] = {}
        self._people: dict[str, _Person] = {}
        self._skipped: set[int] = set()
        for name in label_names:
            self.add_label(name)
        if len(self.label_names) < 2:
            raise InputError(
                f"two or more labels are needed, found {listed(label_names) or 'none'}; add --labels"
            )
        self._file_lock = _locked(output, options.cache_dir)
        try:
            self._continue()
        except BaseException:
            self._file_lock.release()
            raise
        self._generator = np.random.default_rng([options.seed, len(self._answers)])

        order = pool.random_order()
        num_kept = math.ceil(TEST_SHARE * len(pool))
        self._order = order
        self._is_kept = np.zeros(len(self._texts), bool)
        self._is_kept[order[:num_kept]] = True
        self._learner = Learner(
            len(self._texts), self._answers, self.label_names, has_several=options.has_several
        )
        self._message = ""
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._compute_vectors, name="vectors", daemon=True)
        self._thread.start()

    def __enter__(self) -> LabelSession:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the computation of vectors, and let other sessions write to the file."""
        self._is_closed.set()
        self._thread.join()
        self._file_lock.release()

    def next_text(self, person: str) -> TextToLabel | None:
        """Return the text that a person is to label now, None where there is no more: the one that he has not
        answered yet, else another one, which no other person gets meanwhile."""
        with self._lock:
            state = self._person(person)
            state.back = None
            state.steps_back = 0
            if state.current is None:
                state.current = self._chosen(person)
            if state.current is None:
                return None
            state.current.since = time.monotonic()
            return self._to_label(state.current)

    def guess(self, person: str, number: int) -> dict[str, float]:
        """Return the probability of each label of a text, {} before there is a model or a vector. It draws
        answers to itself, so it is best shown after the answer."""
        with self._lock:
            self._check_number(number)
            if self._learner.head is None or not self._learner.has_vector[number]:
                return {}
            [probabilities] = self._learner.probabilities([number])
            # The head knows the labels of its fit
            return dict(zip(self.label_names, map(float, probabilities), strict=False))

    def answer(self, person: str, number: int, labels: list[str]) -> None:
        """Take the labels of the text that a person has before him: one, or with `has_several` any number.
        They are on the disk when this returns, and the model has learned from them. Raises InputError for
        labels that cannot be, and for a text that the person does not have; TrainingError where the answer
        cannot be written."""
        with self._lock:
            new_labels = self._checked_labels(labels)
            state = self._person(person)
            current = self._current_text(person, number)
            if current.is_back:
                self._change(current, new_labels)
                state.back = None
                state.steps_back = 0
            else:
                self._add(person, current, new_labels)
                state.history.append((number, current.is_repeat))
                state.current = None
            if not current.is_repeat:
                self._learner.fit()

    def skip(self, person: str, number: int) -> None:
        """Leave a text out, so that it is not shown again. A repetition, or a text that the person has gone
        back to, keeps its answer."""
        with self._lock:
            state = self._person(person)
            current = self._current_text(person, number)
            if current.is_back:
                state.back = None
                state.steps_back = 0
                return
            if current.is_repeat:
                # It counts as a repetition, so that the next text is another one
                state.history.append((number, True))
            else:
                answer = Answer((), self._split(number), person, _now())
                self._file.append_skipped(LabelledText(self._texts[number], self._cells[number], answer))
                self._skipped.add(number)
            state.current = None

    def back(self, person: str) -> TextToLabel | None:
        """Return the text that a person has answered last, with his labels, which the next answer replaces;
        called again, the one before. None where there is none."""
        with self._lock:
            state = self._person(person)
            if state.steps_back >= len(state.history):
                return None
            state.steps_back += 1
            number, is_repeat = state.history[-state.steps_back]
            state.back = _CurrentText(number, is_repeat, time.monotonic(), is_back=True)
            return self._to_label(state.back)

    def add_label(self, name: str) -> None:
        """Add a label. It is remembered by the answers that have it. Raises InputError for a name that is
        there already, or that no label can have."""
        with self._lock:
            if not name or name != name.strip() or not name.isprintable():
                rule = "the name of a label must be one line without white space around it"
                raise InputError(f"{rule}, found {excerpt(name)}; choose another name")
            if name in self.label_names:
                raise InputError(
                    f"the names of labels must differ, found '{name}' twice; choose another name"
                )
            self.label_names.append(name)

    def status(self) -> dict[str, Any]:
        """Return what is known so far, as JSON has it:

        `answers`, `skipped`, `left`: texts. `labels`: [{name, count}], of the first answers. `kept`: {rows,
        accuracy, macro_f1} of the texts that were kept apart, each {value, low, high} with a 95 % interval,
        None before there is a model. With several labels a text, accuracy is the share of texts with all
        labels right. `curve`: [[answers, accuracy], ...] on the same texts. `gain`: {answers, value, low,
        high}, by how much fifty more answers would raise the accuracy, None where that cannot be told yet;
        `enough`: more answers bring hardly anything. `agreement`: {value, low, high, rows} of people with
        themselves, None before a text was shown twice. `vectors`: {done, total} texts. `command`: a training
        with the answers, None where there are too few. `message`: what went wrong, or nothing.
        """
        with self._lock:
            figures = self._learner.figures(self._order)
            counts = self._label_counts()
            labels = []
            for name, count in zip(self.label_names, counts, strict=True):
                labels.append({"name": name, "count": int(count)})
            done = int(self._learner.has_vector.sum())
            return {
                "answers": len(self._answers),
                "skipped": len(self._skipped),
                "left": len(self._texts) - len(self._answers) - len(self._skipped),
                "labels": labels,
                "kept": figures.kept,
                "curve": figures.curve,
                "gain": figures.gain,
                "enough": figures.enough,
                "agreement": agreement_of(self._answers.values()),
                "vectors": {"done": done, "total": len(self._texts)},
                "command": self._command(),
                "message": self._message,
            }

    def _continue(self) -> None:
        """Take over what the file has. Texts that are not in the pool any more stay answered."""
        rows = self._file.open()
        events = []
        for row in rows:
            number = self._number_of_text.get(row.texts)
            if number is None:
                number = len(self._texts)
                self._texts.append(row.texts)
                self._cells.append(row.cells)
                self._number_of_text[row.texts] = number
            if number in self._answers:
                raise InputError(
                    f"{self._file.path}: a text must be there once, found {excerpt(row.texts[0])} twice; "
                    "remove one of its lines"
                )
            for name in (*row.answer.labels, *(row.answer.second_labels or ())):
                if name not in self.label_names:
                    self.add_label(name)
            self._answers[number] = row.answer
            events.append((row.answer.person, number))
            self._person(row.answer.person).history.append((number, False))
        for person, number in events:
            if self._answers[number].second_labels is not None:
                # When it was shown again is not known, only how often that happened
                self._person(person).history.insert(0, (number, True))
        for texts in self._file.skipped_texts():
            number = self._number_of_text.get(texts)
            if number is not None:
                self._skipped.add(number)

    def _person(self, person: str) -> _Person:
        return self._people.setdefault(person, _Person())

    def _check_number(self, number: int) -> None:
        if not 0 <= number < len(self._texts):
            rule = f"the number of a text must be below {len(self._texts):,}"
            raise InputError(f"{rule}, found {number}; ask for the next text")

    def _checked_labels(self, labels: list[str]) -> tuple[str, ...]:
        unknown = [name for name in labels if name not in self.label_names]
        if unknown:
            names = listed(self.label_names)
            raise InputError(f"labels must be among {names}, found {listed(unknown)}; add it first")
        if not self.options.has_several and len(labels) != 1:
            raise InputError(f"one label a text is needed, found {len(labels)}; give one, or skip the text")
        # In the order of the names, each once
        return tuple(name for name in self.label_names if name in labels)

    def _current_text(self, person: str, number: int) -> _CurrentText:
        """Return a text that a person has before him. After a restart this is any text without an answer."""
        self._check_number(number)
        state = self._person(person)
        for current in (state.back, state.current):
            if current is not None and current.number == number:
                return current
        if number in self._answers or number in self._skipped or number in self._numbers_of_others(person):
            raise InputError(f"text {number} has an answer, or another person has it; ask for the next one")
        return _CurrentText(number, is_repeat=False, since=time.monotonic())

    def _split(self, number: int) -> str:
        return "test" if self._is_kept[number] else "train"

    def _add(self, person: str, current: _CurrentText, labels: tuple[str, ...]) -> None:
        number = current.number
        if current.is_repeat:
            self._change(current, labels)
            return
        answer = Answer(labels, self._split(number), person, _now())
        self._file.append(LabelledText(self._texts[number], self._cells[number], answer))
        self._answers[number] = answer

    def _change(self, current: _CurrentText, labels: tuple[str, ...]) -> None:
        """Set the labels of a text, or the second ones, and write the file again."""
        answer = self._answers[current.number]
        if current.is_repeat:
            answer = replace(answer, second_labels=labels)
        else:
            answer = replace(answer, labels=labels)
        rows = []
        for number, one_answer in {**self._answers, current.number: answer}.items():
            rows.append(LabelledText(self._texts[number], self._cells[number], one_answer))
        self._file.rewrite(rows)
        self._answers[current.number] = answer

    def _to_label(self, current: _CurrentText) -> TextToLabel:
        parts = self._texts[current.number]
        pair = parts[1] if len(parts) > 1 else None
        labels: tuple[str, ...] = ()
        if current.is_back:
            answer = self._answers[current.number]
            labels = answer.labels
            if current.is_repeat:
                labels = answer.second_labels or ()
        return TextToLabel(current.number, parts[0], pair, labels)

    def _numbers_of_others(self, person: str) -> set[int]:
        oldest = time.monotonic() - LOCK_SECONDS
        numbers = set()
        for name, state in self._people.items():
            if name != person and state.current is not None and state.current.since > oldest:
                numbers.add(state.current.number)
        return numbers

    def _chosen(self, person: str) -> _CurrentText | None:
        now = time.monotonic()
        repeat = self._text_to_repeat(self._person(person))
        if repeat is not None:
            return _CurrentText(repeat, is_repeat=True, since=now)
        is_free = np.ones(len(self._texts), bool)
        taken = [*self._answers, *self._skipped, *self._numbers_of_others(person)]
        is_free[taken] = False
        free = self._order[is_free[self._order]]
        test_numbers = free[self._is_kept[free]]
        train_numbers = free[~self._is_kept[free]]
        if not len(free):
            return None
        num_test = sum(answer.split == "test" for answer in self._answers.values())
        is_turn_of_test = num_test <= TEST_SHARE * len(self._answers)
        if len(test_numbers) and (is_turn_of_test or not len(train_numbers)):
            return _CurrentText(int(test_numbers[0]), is_repeat=False, since=now)
        return _CurrentText(self._text_to_learn_from(train_numbers), is_repeat=False, since=now)

    def _text_to_repeat(self, state: _Person) -> int | None:
        """Return a text that the person has answered some time ago, where it is time for one."""
        num_answers = len(state.history) - state.num_repeats
        if state.num_repeats >= num_answers // (REPEAT_EVERY - 1):
            return None
        repeated = {number for number, is_repeat in state.history if is_repeat}
        numbers = []
        for number, is_repeat in state.history[:-MIN_TEXTS_BETWEEN]:
            if not is_repeat and number not in repeated:
                numbers.append(number)
        if not numbers:
            return None
        return int(self._generator.choice(numbers))

    def _text_to_learn_from(self, numbers: np.ndarray) -> int:
        """Return one of the free texts, which are in random order."""
        candidates = numbers[self._learner.has_vector[numbers]][:MAX_CANDIDATES]
        if self._learner.head is None or not len(candidates) or self._generator.random() < RANDOM_SHARE:
            return int(numbers[0])
        probabilities = self._learner.probabilities(candidates)
        num_labels = probabilities.shape[1]
        task = self._task(num_labels)
        [place] = choose_rows(
            "least_confidence",
            1,
            probabilities,
            confidence=task.confidence(probabilities),
            answers=task.decide_by_probabilities(probabilities),
            label_counts=self._label_counts()[:num_labels],
        )
        return int(candidates[place])

    def _compute_vectors(self) -> None:
        """Compute the vectors of all texts, in the background: first those that have answers."""
        try:
            is_answered = np.zeros(len(self._texts), bool)
            is_answered[list(self._answers)] = True
            extra = np.arange(len(self._pool), len(self._texts))
            order = np.concatenate([extra, self._order])
            order = np.concatenate([order[is_answered[order]], order[~is_answered[order]]])
            texts = [self._texts[number] for number in order]
            for places, chunk in self.options.vectors.chunks(texts, self._is_closed.is_set):
                with self._lock:
                    self._learner.take_vectors(order[places], chunk)
                if self._is_closed.is_set():
                    return
            with self._lock:
                self._learner.end_vectors()
        except (InputError, TrainingError, OSError, RuntimeError) as error:
            logger.warning("%s", error)
            with self._lock:
                self._message = str(error)

    def _label_counts(self) -> np.ndarray:
        """Return how many texts have each label, (num_labels,)."""
        counts = dict.fromkeys(self.label_names, 0)
        for answer in self._answers.values():
            for name in answer.labels:
                counts[name] += 1
        return np.array(list(counts.values()))

    def _task(self, num_labels: int) -> Task:
        return unordered_task(self.options.has_several, self.label_names[:num_labels])

    def _command(self) -> str | None:
        """Return the command of a training; None where it would refuse the files."""
        names: dict[str, set[str]] = {"train": set(), "test": set()}
        for answer in self._answers.values():
            names[answer.split].update(answer.labels)
        if len(names["train"]) < 2 or not names["test"] or not names["test"] <= names["train"]:
            return None
        settings: dict[str, Any] = {
            "data.train": str(self._file.part("train")),
            "data.test": str(self._file.part("test")),
        }
        if self.options.has_several:
            settings["data.task"] = self._task(len(self.label_names)).name
        text_columns = self._pool.text_columns
        if len(text_columns) > 1:
            settings["data.text_column"] = text_columns
        elif text_columns != ["text"]:
            settings["data.text_column"] = text_columns[0]
        if self._pool.pair_column is not None:
            settings["data.text_pair_column"] = self._pool.pair_column
        if self._file.label_column != "label":
            settings["data.label_column"] = self._file.label_column
        lengths = [sum(map(len, self._texts[number])) for number in self._answers]
        if max(lengths) > DataConfig.max_length:
            # The vectors are of whole texts too
            settings["data.long"] = "windows"
        if self.options.model != E5_SMALL:
            settings["model.name"] = self.options.model
        return AdvisedCommands().training(settings)


def _now() -> str:
    return datetime.now().isoformat(timespec="seconds")


def _locked(output: Path, cache_dir: str) -> FileLock:
    """Return a lock for a file of answers, which this process now has. Raises InputError where another one
    has it."""
    Path(cache_dir).mkdir(parents=True, exist_ok=True)
    lock = FileLock(Path(cache_dir) / f"labelling-{content_key(str(output.resolve()))}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise InputError(
            f"{output}: one program may write answers to a file, found another one that does; open its page, "
            "or name another --output"
        ) from error
    return lock
