"""The data report that is printed before training: rows, classes, lengths, and what may be wrong."""

from collections.abc import Callable
from functools import partial

import numpy as np

from ..errors import listed, shorten
from .data_report_words import columns_in, say
from .dataset import Dataset
from .label_names import look_alikes, missing_values, with_code_points
from .long_texts import CUT
from .tokens import TokenStore

# A key of the words, and the values in its text
Say = Callable[..., str]
PERCENTILES = (5, 50, 95, 99, 100)
# That are all shown
MAX_CLASSES = 50
# Largest and smallest of more classes
ENDS = 5
# Of a class in train, below which the report warns
FEW_ROWS = 20
# Of labels that look alike
MAX_GROUPS = 5
# Rows counted at once
CHUNK = 1 << 16


def token_statistics(dataset: Dataset, stores: dict[str, TokenStore]) -> dict:
    """Return for each split percentiles of the stored lengths in tokens, the rows with tokens left out, the
    fraction of unknown tokens, and where rows have windows, how many have more than one."""
    statistics = {}
    for name, split in dataset.splits.items():
        store = stores[name]
        counts, cut = length_counts(split.rows, store)
        reached = np.cumsum(counts) / len(split)
        statistics[name] = {
            "tokens": {str(p): int(np.searchsorted(reached, p / 100 - 1e-12)) for p in PERCENTILES},
            "cut": cut,
            "max_length": store.max_length,
            "unknown_fraction": store.unknown_tokens / max(1, len(store.tokens)),
        }
        if store.long != CUT:
            statistics[name]["long"] = store.long.way
        if store.has_windows:
            rows = split.rows
            several = int((store.first_windows[rows + 1] - store.first_windows[rows] > 1).sum())
            statistics[name] |= {"in_several_windows": several, "max_windows": store.long.max_windows}
    return statistics


def length_counts(rows: np.ndarray, store: TokenStore) -> tuple[np.ndarray, int]:
    """Return the rows of each length, (store.most_tokens + 1,), and of those that were cut."""
    counts, cut = np.zeros(store.most_tokens + 1, dtype=np.int64), 0
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        lengths = store.offsets[chunk + 1] - store.offsets[chunk]
        counts += np.bincount(lengths, minlength=len(counts))
        cut += int(store.cut[chunk].sum())
    return counts, cut


def render(dataset: Dataset, stores: dict[str, TokenStore], language: str = "en") -> str:
    """Return the data report as text, for people, in a language, en or zh."""
    t = partial(say, language)
    tokens = token_statistics(dataset, stores)
    lines = [t("heading")]
    for table in dataset.tables:
        skipped = t("skipped", table.skipped) if table.skipped else ""
        columns = columns_in(table.columns, language)
        lines.append(f"  {t('table', table.source, table.num_rows, skipped, columns)}")
        lines += [
            f"    {t('skipped_row', row['place'], row['problem'])}" for row in table.skipped_rows()[:10]
        ]
        if table.skipped > 10:
            lines.append(f"    {t('more_skipped', table.skipped - 10)}")
        if table.multiline:
            lines.append(f"    {t('multiline', table.multiline, table.first_multiline)}")
    if dataset.relabelled:
        effect = dataset.relabelled
        line = t("relabelled", effect["source"], effect["fixes"], effect["rows"], effect["changed"])
        unused = t("unused_labels", effect["unused"], effect["first_unused"]) if effect["unused"] else ""
        lines.append(f"  {line}{unused}")
    lines += _label_lines(dataset.label_names, t)
    if len(dataset.tables) == 1 and len(dataset.splits) > 1:
        rows = ", ".join(t("of_split", len(split), name) for name, split in dataset.splits.items())
        lines.append(f"  {t('split', dataset.tables[0].num_rows, rows)}")
    lines += _few_lines(dataset.statistics, t)
    for name, statistics in dataset.statistics.items():
        lines += _split_lines(name, statistics, tokens[name], t)
    return "\n".join(lines)


def _label_lines(label_names: list[str], t: Say) -> list[str]:
    """Return a warning about labels that look alike, and one about labels that are no labels."""
    lines = []
    if groups := look_alikes(label_names):
        shown = [t("and").join(map(with_code_points, group)) for group in groups[:MAX_GROUPS]]
        more = t("more_groups", len(groups) - MAX_GROUPS) if len(groups) > MAX_GROUPS else ""
        lines.append(f"  {t('look_alikes', '; '.join(shown), more)}")
    if missing := missing_values(label_names):
        lines.append(f"  {t('missing', listed(map(repr, missing)))}")
    return lines


def _few_lines(statistics: dict, t: Say) -> list[str]:
    """Return warnings about classes with few rows in train, and classes that dev or test does not have."""
    lines = []
    few = {name: count for name, count in statistics["train"]["classes"].items() if count < FEW_ROWS}
    if few:
        smallest = min(few, key=few.get)
        lines.append(f"  {t('few_rows', len(few), FEW_ROWS, shorten(smallest), few[smallest])}")
    for name in ("dev", "test"):
        classes = statistics.get(name, {}).get("classes", {})
        absent = [label for label, count in classes.items() if not count]
        if absent:
            lines.append(f"  {t('absent', name, listed(absent, ENDS))}")
    return lines


def _classes(counts: dict[str, int], rows: int, t: Say) -> str:
    """Return the rows of each class; of many classes, the largest and the smallest."""
    shown = [f"{shorten(label)} {count:,} ({count / rows:.1%})" for label, count in counts.items()]
    if len(shown) <= MAX_CLASSES:
        return ", ".join(shown)
    by_size = [shown[index] for index in np.argsort([-count for count in counts.values()], kind="stable")]
    return t("many_classes", len(shown), ", ".join(by_size[:ENDS]), ", ".join(by_size[-ENDS:]))


def _long(tokens: dict, rows: int, t: Say) -> str:
    """Return what is read of long texts, for one line of the report."""
    cut, length = t("rows_and_share", tokens["cut"], tokens["cut"] / rows), tokens["max_length"]
    if "in_several_windows" in tokens:
        return t("windows", tokens["in_several_windows"], length, cut, tokens["max_windows"])
    return t("head_tail" if "long" in tokens else "cut", cut, length)


def _split_lines(name: str, statistics: dict, tokens: dict, t: Say) -> list[str]:
    rows = statistics["rows"]
    lengths = ", ".join(
        f"{t('longest') if p == '100' else p + ' %'} {length}" for p, length in tokens["tokens"].items()
    )
    classes = t("classes", _classes(statistics["classes"], rows, t)) if statistics["classes"] else ""
    lines = [f"  {t('of_rows', name, rows, classes)}", f"    {t('tokens', lengths, _long(tokens, rows, t))}"]
    if tokens["unknown_fraction"] > 0.01:
        lines.append(f"    {t('unknown', tokens['unknown_fraction'])}")
    if "deviation" in statistics:
        numbers = (statistics[key] for key in ("mean", "deviation", "least", "largest"))
        lines.append(f"    {t('numbers', *numbers)}")
    if "unlabelled" in statistics:
        unlabelled = statistics["unlabelled"]
        lines.append(f"    {t('labels_a_row', statistics['labels_per_row'], unlabelled, unlabelled / rows)}")
    notes = [t(key, statistics[key]) for key in ("repeated", "conflicting") if statistics[key]]
    notes += [t("also_in", count, other) for other, count in statistics["also_in"].items() if count]
    lines += [f"    {'; '.join(notes)}"] if notes else []
    copies = statistics.get("near_copies", {"rows": 0})
    if copies["rows"]:
        pairs = "; ".join(t("copy", one, other) for one, other in copies["examples"])
        lines.append(f"    {t('copies', copies['rows'], pairs)}")
    return lines
