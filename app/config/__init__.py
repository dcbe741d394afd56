"""Settings: the schema, the command line, YAML files, and messages about wrong values."""
