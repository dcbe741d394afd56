"""Compares programs that do the same work: each in its own process, one running at a time, in rounds.

`rounds` starts and asks them; `worker`, `meter` and `machine` run in the process of a program.
"""
