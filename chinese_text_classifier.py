"""The package of app/ by the name that it has where it is installed, for `from chinese_text_classifier import
load` in a clone, and for `pip install -e .`: there `app` may be the name of another package."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

NAME = "chinese_text_classifier"
FOLDER = Path(__file__).resolve().parent / "app"

if __name__ == NAME:
    spec = spec_from_file_location(NAME, FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)])
    sys.modules[NAME] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])
elif __name__ == "__main__":
    from chinese_text_classifier.commands import main

    sys.exit(main())
