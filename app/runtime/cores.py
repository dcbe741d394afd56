"""How many cores this process may use: those that it is bound to, and no more than its container is given."""


def num_cores() -> int:
    """Return the number of cores that this process may use, at least 1.

    A container with a limit of 2 CPUs on a machine of 64 cores sees all of them, but 64 threads would wait
    for each other most of the time.
    """
    # Later than --help
    import joblib

    return joblib.cpu_count()
