"""Answers of the programs -> the results of the report."""

from __future__ import annotations

import statistics


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
    """Return how many times as many rows (or `per`) per second ours did, in each round, and their spread."""
    rounds = [
        (mine[per] / mine["seconds"]) / (other[per] / other["seconds"]) for mine, other in zip(ours, peer, strict=True)
    ]
    return {"min": min(rounds), "median": statistics.median(rounds), "max": max(rounds), "rounds": rounds}


def spread(ratio: dict) -> str:
    """Return a ratio for the table: median, and lowest and highest round."""
    return f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"


def render_table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table for a terminal: the first column to the left, all others to the right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in [header, *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)
