"""The labels of a page below their parents."""

from .hierarchy import Hierarchy


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
