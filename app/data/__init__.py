"""Data files -> validated rows -> tables, splits and token stores on disk."""
