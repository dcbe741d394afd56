"""Clients that ask one server.

Their job is `port`, `clients`, `seconds`, `texts`, `wanted` (probabilities by label, of each text) and
`tolerance`.
"""

import asyncio
import time


async def honest(session, job: dict, first: int, end: float, result: dict) -> None:
    """Ask one text after the other until `end`, and check each answer against its own text."""
    number = first
    while time.monotonic() < end:
        place = number % len(job["texts"])
        started = time.perf_counter()
        async with session.post("/predict", json={"inputs": job["texts"][place]}) as answer:
            labels = await answer.json() if answer.status == 200 else []
        if labels:
            result["seconds"].append(time.perf_counter() - started)
            errors = [abs(job["wanted"][place][one["label"]] - one["score"]) for one in labels]
            result["wrong"] += max(errors) > job["tolerance"]
        else:
            result["refused"] += 1
        number += job["clients"]


async def ask(job: dict) -> dict:
    """Return how many requests were answered, how fast, how many answers were wrong, and how many were
    refused."""
    import aiohttp

    result: dict = {"seconds": [], "wrong": 0, "refused": 0}
    started = time.monotonic()
    end = started + job["seconds"]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{job['port']}", connector=connector) as session:
        asked = [honest(session, job, first, end, result) for first in range(job["clients"])]
        await asyncio.gather(*asked)
    took, seconds = time.monotonic() - started, sorted(result["seconds"]) or [float("nan")]
    requests, times = len(result["seconds"]), {"p50": seconds[len(seconds) // 2]}
    times |= {"p99": seconds[int(len(seconds) * 0.99)], "requests_per_second": requests / took}
    return times | {"requests": requests, "wrong": result["wrong"], "refused": result["refused"]}
