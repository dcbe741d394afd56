"""The model that learns while people label: the vectors of the texts, a head on those that have an answer,
and its curve over the answers."""

from __future__ import annotations

import math

import numpy as np

from ..vectors.head import LinearHead, centre_and_scale, fit_head
from .figures import CurvePoint, Figures
from .label_file import Answer

MAX_OTHERS = 1000  # texts without an answer that show how much the model still changes
MIN_CENTRE_ROWS = 200  # vectors of which the mean is known well enough
MAX_CENTRE_ROWS = 5000  # vectors of which the mean is taken
CURVE_STEP = 5  # answers between two points of the curve, at first
MAX_POINTS = 60  # of the curve; of more, every second one is left out
MAX_REPLAYED = 30  # points of the curve that are computed again when a sitting is continued


class Learner:
    """The model of a session. `answers`, by the number of their text, and `label_names` are those of the
    session, which changes them and then calls `fit`. Only one thread may call it at a time.

    `head` is None before there are answers with vectors. `has_vector` (num_texts,) says whether the vector of
    a text is known.
    """

    def __init__(
        self, num_texts: int, answers: dict[int, Answer], label_names: list[str], has_several: bool
    ) -> None:
        self.head: LinearHead | None = None
        self.has_vector = np.zeros(num_texts, bool)
        self._answers = answers
        self._label_names = label_names
        self._has_several = has_several
        self._vectors: np.ndarray | None = None
        self._centre: tuple[np.ndarray, float] | None = None
        self._num_centred = 0
        self._curve: list[CurvePoint] = []
        self._curve_step = CURVE_STEP
        self._figures: Figures | None = None

    def take_vectors(self, numbers: np.ndarray, chunk: np.ndarray) -> None:
        """Add the vectors of texts, (num_rows, size)."""
        if self._vectors is None:
            self._vectors = np.zeros((len(self.has_vector), chunk.shape[1]), np.float16)
        self._vectors[numbers] = chunk
        self.has_vector[numbers] = True
        num_known = int(self.has_vector.sum())
        if num_known >= max(MIN_CENTRE_ROWS, 2 * self._num_centred):
            self._take_centre()
        if self.head is None:
            self._replay()

    def end_vectors(self) -> None:
        """Use the vectors that are there, however few: there will be no more."""
        self._take_centre()
        if self.head is None:
            self._replay()

    def _take_centre(self) -> None:
        numbers = np.flatnonzero(self.has_vector)
        if len(numbers):
            self._centre = centre_and_scale(self._vectors[numbers[:MAX_CENTRE_ROWS]])
            self._num_centred = len(numbers)

    def _replay(self) -> None:
        """Compute the curve of the answers that were there before their vectors."""
        numbers = list(self._answers)
        if not all(self.has_vector[numbers]):
            return
        self._curve = []
        self._curve_step = CURVE_STEP * max(1, math.ceil(len(numbers) / CURVE_STEP / MAX_REPLAYED))
        for num_answers in range(self._curve_step, len(numbers), self._curve_step):
            self.fit(num_answers)
        self.fit()

    def fit(self, num_answers: int | None = None) -> None:
        """Fit the head on the first answers, all of them unless said otherwise, and add a point to the curve
        where it is time."""
        self._figures = None
        if self._centre is None:
            return
        if num_answers is None:
            num_answers = len(self._answers)
        numbers = [number for number in list(self._answers)[:num_answers] if self.has_vector[number]]
        rows = [number for number in numbers if self._answers[number].split == "train"]
        targets = self._targets(rows)
        has_two_labels = targets.any(axis=0).sum() >= 2
        if not has_two_labels:
            return
        centre, scale = self._centre
        self.head = fit_head(self._vectors[rows], targets, centre, scale, self._has_several, start=self.head)
        self._add_point(num_answers)

    def _add_point(self, num_answers: int) -> None:
        """Add the head to the curve, unless its last point is near."""
        curve = self._curve
        last = 0
        if curve:
            last = curve[-1].answers
        if num_answers < last + self._curve_step:
            return
        curve.append(CurvePoint(num_answers, self.head))
        if len(curve) > MAX_POINTS:
            self._curve_step *= 2
            self._curve = curve[1::2]

    def _targets(self, numbers: list[int]) -> np.ndarray:
        """Return the labels of answers as 0 and 1, (num_rows, num_labels)."""
        targets = np.zeros((len(numbers), len(self._label_names)), np.float32)
        columns = {name: column for column, name in enumerate(self._label_names)}
        for row, number in enumerate(numbers):
            for name in self._answers[number].labels:
                targets[row, columns[name]] = 1
        return targets

    def probabilities(self, numbers: np.ndarray | list[int]) -> np.ndarray:
        """Return the probability of each label of texts, (num_rows, num_labels), where there is a head and
        each text has a vector. Labels that were added since the last fit have no column."""
        return self.head.probabilities(self._vectors[numbers])

    def figures(self, order: np.ndarray) -> Figures:
        """Return the figures of the kept texts, which are computed once after each fit. `order` are the texts
        of the pool at random: from it come those without an answer."""
        if self._figures is not None:
            return self._figures
        rows = []
        for number, answer in self._answers.items():
            if answer.split == "test" and self.has_vector[number]:
                rows.append(number)
        if self.head is None or not rows:
            return Figures()
        is_other = self.has_vector.copy()
        is_other[list(self._answers)] = False
        others = order[is_other[order]][:MAX_OTHERS]
        self._figures = Figures.of(
            labels=self._targets(rows),
            vectors=self._vectors[rows],
            other_vectors=self._vectors[others],
            head=self.head,
            points=self._curve,
            num_answers=len(self._answers),
        )
        return self._figures
