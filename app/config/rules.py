"""The rules for several settings together, which are checked once all settings have their values. What is
allowed for a single value stands at its field in `schema`."""

from .schema import GROUPS, HINTS, TASKS, Config, DataConfig, ModelConfig, Needs, check_address


class RuleError(Exception):
    """A setting does not go with the others: its dotted name, and in words what it must be instead."""

    def __init__(self, name: str, rule: str) -> None:
        super().__init__(f"{name} must be {rule}")
        self.name = name
        self.rule = rule


def check_rules(config: Config) -> None:
    """Raise RuleError for the first rule that the configuration breaks; InputError for an address with
    credentials in it."""
    _check_files(config.data)
    _check_loss_and_metric(config)
    _check_traits(config)
    _check_labels_of_task(config)
    data = config.data
    model = config.model
    train = config.train
    if model.freeze and model.lora_rank:
        raise RuleError("model.freeze", "left out with model.lora_rank, which freezes all")
    if train.learning_rate == 0 and not train.head_learning_rate:
        raise RuleError("train.learning_rate", "greater than 0, or nothing is learnt")
    if data.long != "cut" and data.text_pair_column is not None:
        rule = f"left out with data.long {data.long}, which reads single texts"
        raise RuleError("data.text_pair_column", rule)
    if data.label_columns is not None:
        rule = "left out with data.label_columns, which has the labels"
        for key in ("labels", "label_column", "label_separator", "votes"):
            if getattr(data, key) is not None:
                raise RuleError(f"data.{key}", rule)
    if train.loss == "logit_adjusted" and train.class_weights == "balanced":
        rule = "left out with train.loss logit_adjusted: both correct the same imbalance"
        raise RuleError("train.class_weights", rule)
    if not model.has_random_weights:
        rule = "left out unless model.name is random (for random weights: --model.name random)"
        for key in ("architecture", "vocab_file"):
            if getattr(model, key) != getattr(ModelConfig(), key):
                raise RuleError(f"model.{key}", rule)


def _check_files(data: DataConfig) -> None:
    """Files of dev or test need a file of train, and addresses have no credentials in them."""
    for key in ("train", "dev", "test"):
        files = getattr(data, key) or []
        if isinstance(files, str):
            files = [files]
        for file in files:
            check_address(f"data.{key}", file)
        if files and data.train is None:
            raise RuleError(f"data.{key}", "given together with data.train")


def _check_loss_and_metric(config: Config) -> None:
    """The loss and the metric are among those of the task; a task without a choice of losses takes any."""
    task = config.data.task
    metrics = ("auto", *TASKS[task].metrics)
    losses = TASKS[task].losses
    if config.train.best_metric not in metrics:
        raise RuleError("train.best_metric", f"one of {', '.join(metrics)} with data.task {task}")
    if losses and config.train.loss not in losses:
        raise RuleError("train.loss", f"one of {', '.join(losses)} with data.task {task}")


def _check_traits(config: Config) -> None:
    """A setting that needs a trait of the rows keeps its default where the rows of the task lack it."""
    traits = TASKS[config.data.task].traits
    for name, hint in HINTS.items():
        for needs in getattr(hint, "__metadata__", ()):
            if not isinstance(needs, Needs) or needs.trait in traits:
                continue
            group, _dot, key = name.partition(".")
            value = getattr(getattr(config, group), key)
            default = getattr(GROUPS[group](), key)
            if value not in (default, *needs.also):
                tasks = [task for task, settings in TASKS.items() if needs.trait in settings.traits]
                raise RuleError(name, f"left out unless data.task is {' or '.join(tasks)}")


def _check_labels_of_task(config: Config) -> None:
    """Labels in a hierarchy need their separator; a task with labels needs files that have them."""
    data = config.data
    task = data.task
    traits = TASKS[task].traits
    if data.label_separator is not None and "several" not in traits and data.votes is None:
        tasks = [name for name, settings in TASKS.items() if "several" in settings.traits]
        rule = f"left out unless data.task is {' or '.join(tasks)}, or data.votes is set"
        raise RuleError("data.label_separator", rule)
    if "hierarchy" in traits and data.label_hierarchy in (None, data.label_separator):
        rule = "what is between the levels of a label, such as - or /, and not data.label_separator"
        raise RuleError("data.label_hierarchy", rule)
    if "labels" not in traits:
        if config.model.lora_rank:
            raise RuleError("model.lora_rank", f"left out with data.task {task}")
        return
    if data.format == "text":
        tasks = [name for name, settings in TASKS.items() if "labels" not in settings.traits]
        rule = f"a format with labels unless data.task is {' or '.join(tasks)}"
        raise RuleError("data.format", rule)
    if data.train is None and task != DataConfig.task:
        rule = f"a file with data.task {task} (the sample set has one label a row)"
        raise RuleError("data.train", rule)
