"""report.html: one file to look at, with everything that is known about a classifier on labelled rows."""
