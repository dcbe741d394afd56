"""Why a classifier gives a label: attributions of characters, and the test whether they explain anything."""
