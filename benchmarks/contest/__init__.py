"""A contest between programs that do the same work: each in a process of its own, one running at a time, in rounds.

`rounds` is the side that asks; `worker`, `meter` and `machine` run in the process of a contestant.
"""
