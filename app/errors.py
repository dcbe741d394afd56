"""The one error that a user, not a programmer, has to mend."""


class InputError(ValueError):
    """Bad input: a file, a configuration or a checkpoint that breaks a rule.

    The message says the rule, what was found (with file and line where there is one) and the remedy. The entry
    scripts print it without a traceback and end with exit status 2.
    """


def nearest(name: str, candidates) -> str:
    """Return `; did you mean 'x'?` for the candidate most like `name`, or an empty string."""
    import difflib

    close = difflib.get_close_matches(str(name), [str(candidate) for candidate in candidates], n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
