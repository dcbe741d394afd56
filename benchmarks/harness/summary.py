"""Answers of the programs -> the results of the report."""

from __future__ import annotations

import statistics

# Of the ratios of the rounds, as a fraction of their median, for a result that holds
MAX_SPREAD = 0.1


def summarise(answers: list[dict]) -> dict:
    """Return one program's results over all its rounds; rates are of all rounds together."""
    seconds = sum(answer["seconds"] for answer in answers)
    steps, rows, real_tokens, tokens = (
        sum(answer[name] for answer in answers) for name in ("steps", "rows", "real_tokens", "tokens")
    )
    return {
        "steps": steps,
        "rows": rows,
        "seconds": seconds,
        "seconds_per_step": seconds / steps,
        "rows_per_second": rows / seconds,
        "real_tokens_per_second": real_tokens / seconds,
        "padding": 1 - real_tokens / tokens,
        "peak_memory": max(answer["peak_memory"] for answer in answers),
        "rounds": answers,
    }


def ratios(ours: list[dict], peer: list[dict], per: str = "rows") -> dict:
    """Return how many times as many rows (or `per`) per second ours did, in each round, and their spread.

    `spread` is the difference of the highest and the lowest, as a fraction of the median.
    """
    rounds = [
        (mine[per] / mine["seconds"]) / (other[per] / other["seconds"])
        for mine, other in zip(ours, peer, strict=True)
    ]
    lowest, median, highest = min(rounds), statistics.median(rounds), max(rounds)
    return {
        "min": lowest,
        "median": median,
        "max": highest,
        "spread": (highest - lowest) / median,
        "rounds": rounds,
    }


def spread(ratio: dict) -> str:
    """Return a ratio for the table: median, and lowest and highest round."""
    return f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"


def unsteady(ratios: dict[str, dict]) -> list[str]:
    """Return a line for each ratio, by the name of its program, that differs too much from round to round."""
    return [
        f"{name}: the ratios of the rounds spread over {ratio['spread']:.0%} of their median, more than "
        f"{MAX_SPREAD:.0%}: more rounds or more steps are needed"
        for name, ratio in ratios.items()
        if ratio["spread"] > MAX_SPREAD
    ]


def render_table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table for a terminal: the first column to the left, all others to the right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in [header, *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)


def median_rates(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the median over the rounds of the rate of matrix products, by precision;
    nothing without rounds."""
    return {name: statistics.median(rates[name] for rates in rounds) for name in rounds[0]} if rounds else {}


def render_rates(rates: dict[str, float]) -> str:
    """Return rates of matrix products, by precision in operations per second, in a few words."""
    return ", ".join(f"{name} {rate / 1e9:,.0f} GFLOP/s" for name, rate in rates.items())
