"""What page and card say of labels in a hierarchy, and the labels of a page below their parents."""

from .hierarchy import Hierarchy
from .words import MULTI_LABEL, SINGLE_LABEL

PATH_WORDS = {
    "parents_note": (
        "Click a class to see those below it; its figures are of all of them together.",
        "点击一个类别，可以看到它下面的类别；它的数字是下面所有类别合在一起的。",
    ),
    "ends_here": ("{0} (the path ends here)", "{0}（路径到此为止）"),
}
ABOUT = (
    "**Hierarchy.** A label is a path of levels with `{0}` between them.",
    "**层次。** 标签是由各级组成的路径，各级之间是 `{0}`。",
)
SINGLE_PATH = (
    SINGLE_LABEL
    | PATH_WORDS
    | {
        "card_what": (
            "A classifier of Chinese {texts} with {labels:,} labels in a hierarchy",
            "中文{texts}层次分类模型，共 {labels:,} 个标签",
        ),
        "card_paths": (
            f"{ABOUT[0]} The probability of a parent is the sum of those of the labels below it. "
            "`predict.py --abstain` stops at the deepest level that is sure enough.",
            f"{ABOUT[1]}上级的概率是其下各标签概率之和。`predict.py --abstain` 停在把握足够的最深一级。",
        ),
    }
)
MULTI_PATH = (
    MULTI_LABEL
    | PATH_WORDS
    | {
        "card_what": (
            "A classifier of Chinese {texts} with {labels:,} labels in a hierarchy, several of them possible "
            "for each",
            "中文{texts}层次分类模型，共 {labels:,} 个标签，每条可以有多个",
        ),
        "card_paths": (
            f"{ABOUT[0]} A text that has a label has all that is above it.",
            f"{ABOUT[1]}文本有某个标签，也就有它上面的各级。",
        ),
    }
)


def folded(tree: Hierarchy, classes: dict, parents: dict) -> list[dict]:
    """Return the nodes of the highest level, each with its `name`, its metrics as `scores`, whether it `ends`
    there, and the nodes below it, `children`."""
    entries: dict[tuple, dict] = {(): {"children": []}}
    for number, node in enumerate(tree.nodes):
        name = tree.name(number)
        entry = {
            "name": node[-1],
            "scores": parents.get(name) or classes[name],
            "ends": False,
            "children": [],
        }
        entries[node] = entry
        entries[node[:-1]]["children"].append(entry)
        if name in parents and name in classes:
            own = entry | {"scores": classes[name], "ends": True, "children": []}
            entry["children"].append(own)
    return entries[()]["children"]
