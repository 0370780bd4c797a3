"""The rules of the house, as functions from source text to complaints.

A *tree* is a dictionary of module names and their source. An empty answer means that all is well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

PACKAGE = "timebounds"

# Each line is a floor, from the ground up; within a line, from the left. A module imports from
# lower lines and from its left. `x.*` stands for all files of a folder, in any order but a circle.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "_checks", "_values", "_settled"),
    (
        "bounds",
        "bounds.alarm",
        "bounds.clock",
        "bounds.waking",
        "bounds.os_signals",
        "bounds.stop_facts",
        "bounds.stop",
        "bounds.deadline",
        "bounds.expiry",
        "bounds.backoff",
        "bounds.allowance",
        "bounds.retry_budget",
        "bounds._threads",
        "bounds.lookup",
        "bounds.ownership",
        "bounds.custody",
        "bounds.errand",
    ),
    (
        "policies",
        "policies.plan",
        "policies.evidence",
        "policies.inbox",
        "policies.receiving",
        "policies.wants",
        "policies.sending",
        "policies.dialing",
        "policies.hints",
        "policies.retry_evidence",
        "policies.retrying",
        "policies.retry_hooks",
        "policies.offload_evidence",
        "policies.timetable",
        "policies.jobs",
        "policies.agenda",
        "policies.runner",
        "policies.work",
        "policies.mailbox",
        "policies.desk",
        "policies.shelf",
        "policies.caching",
    ),
    (
        "blocking",
        "blocking.turn",
        "blocking.waiting",
        "blocking.switched_port",
        "blocking.socket_port",
        "blocking.receiver",
        "blocking.sending_port",
        "blocking.sender",
        "blocking.bounding",
        "blocking.deadline_file",
        "blocking.below_tls",
        "blocking.bounded_calls",
        "blocking.deadline_socket",
        "blocking.dial_port",
        "blocking.connection",
        "blocking.retry",
        "blocking.scheduler",
        "blocking.worker",
        "blocking.cache",
        "aio",
        "aio.ports",
        "aio.receiver",
        "aio.sending_ports",
        "aio.sender",
        "aio.connection",
        "aio.retry",
        "aio.completion",
        "aio.enforcing",
        "aio.telling",
        "aio.arguments",
        "aio.verdict",
        "aio.handle",
        "aio.offload",
        "aio.bridge",
        "aio.releases",
        "aio.scheduler",
        "aio.worker",
        "aio.cache",
        "attempts",
        "retry",
        "wire",
        "journal",
    ),
    # The facade: what stands above it uses the library as its users do.
    ("",),
    ("interop.*",),
    (
        "testing.fake_time",
        "testing.fake_face",
        "testing.loop",
        "testing.fake_clock",
        "testing.forbidden_clock",
        "testing.scripted_socket",
        "testing.scripted_stream",
        "testing.drip_server",
        "testing.impaired_proxy",
        "testing.order",
        "testing.contracts",
        "testing.journal_contract",
        "testing",
    ),
    ("demo.*",),
    ("__main__",),
)
# These import nothing of ours, not even from their left.
ALONE = ("errors", "_checks", "_values", "_settled")
# Neither folder of a pair imports the other.
APART = (("blocking", "aio"),)
# Only these import testing.
TESTING_USERS = ("demo",)


@dataclass(frozen=True)
class Ban:
    """Modules that only some of ours may import; `lazily` ones only in a function or for types."""

    modules: tuple[str, ...]
    allowed: tuple[str, ...] = ()
    lazily: tuple[str, ...] = ()
    everywhere_but: tuple[str, ...] = ()


BANS = (
    Ban(("time",), allowed=("bounds.clock",)),
    Ban(("asyncio",), allowed=("aio", "testing", "demo"), lazily=("bounds.clock",)),
    # `select` alone: a stop ends a wait for descriptors, whatever they belong to.
    Ban(
        ("select",),
        allowed=("bounds.waking", "blocking", "aio.ports", "aio.connection", "testing", "demo"),
    ),
    Ban(
        ("socket", "ssl"),
        allowed=(
            "bounds.lookup",
            "blocking",
            "aio.ports",
            "aio.sending_ports",
            "aio.connection",
            "aio.releases",
            "interop",
            "testing",
            "demo",
        ),
        lazily=("aio.sender",),
    ),
    Ban(("random",), allowed=("bounds.backoff",)),
    Ban(("threading", "_thread"), everywhere_but=("policies",)),
)

LONGEST_FUNCTION = 70
LONGEST_FILE = 350


# ---------------------------------------------------------------- reading


def read_tree(source: Path) -> dict[str, str]:
    """Read a package's files under their names within it; the facade's name is empty."""
    tree = {}
    for path in sorted((source / PACKAGE).rglob("*.py")):
        parts = path.relative_to(source / PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree[name] = path.read_text()
    return tree


def inside(name: str, folder: str) -> bool:
    return name == folder or name.startswith(folder + ".")


def inside_any(name: str, folders: tuple[str, ...]) -> bool:
    return any(inside(name, folder) for folder in folders)


@dataclass(frozen=True)
class Import:
    by: str
    target: str
    line: int
    lazy: bool

    def __str__(self) -> str:
        return f"{self.by or PACKAGE}:{self.line} imports {self.target or PACKAGE}"


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def import_nodes(
    node: ast.AST, *, lazy: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, lazy
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from import_nodes(child, lazy=lazy or function or is_for_types(child))


def origin(node: ast.ImportFrom, by: str, *, is_package: bool) -> str:
    """Give the absolute name of the module that a `from` names."""
    if not node.level:
        return node.module or ""
    here = [PACKAGE, *filter(None, by.split("."))]
    up = node.level - (1 if is_package else 0)
    return ".".join([*here[: len(here) - up], *filter(None, [node.module])])


def imports(tree: dict[str, str]) -> tuple[list[Import], list[Import]]:
    """Split all imports into ours, under the tree's names, and other people's."""
    ours, others = [], []
    for by, source in tree.items():
        is_package = by == "" or any(name.startswith(by + ".") for name in tree)
        for node, lazy in import_nodes(ast.parse(source)):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            else:
                start = origin(node, by, is_package=is_package)
                targets = [f"{start}.{alias.name}" for alias in node.names]
            for target in targets:
                if inside(target, PACKAGE):
                    ours.append(Import(by, known(target, tree), node.lineno, lazy))
                else:
                    others.append(Import(by, target, node.lineno, lazy))
    return ours, others


def known(target: str, tree: dict[str, str]) -> str:
    """Cut a dotted name of ours down to the module in it."""
    name = target.removeprefix(PACKAGE).removeprefix(".")
    while name not in tree and "." in name:
        name = name.rpartition(".")[0]
    return name if name in tree or listed(name) else ""


# ---------------------------------------------------------------- floors


def listed(name: str) -> bool:
    return place(name) is not None


def place(name: str) -> tuple[int, int] | None:
    for floor, names in enumerate(FLOORS):
        for position, entry in enumerate(names):
            if name == entry or (entry.endswith(".*") and inside(name, entry[:-2])):
                return floor, position
    return None


def floor_complaints(tree: dict[str, str]) -> list[str]:
    found = [f"{name or PACKAGE} stands nowhere in the table" for name in tree if not listed(name)]
    for one in imports(tree)[0]:
        here, there = place(one.by), place(one.target)
        if here is None or there is None:
            continue
        if one.by in ALONE:
            found.append(f"{one}, and should import nothing of ours")
        elif here < there:
            found.append(f"{one}, which stands above it or to its right")
        elif here == there and one.by == one.target:
            found.append(f"{one}, itself")
        for left, right in chain(APART, [pair[::-1] for pair in APART]):
            if inside(one.by, left) and inside(one.target, right):
                found.append(f"{one}: the two never import each other")
        if inside(one.target, "testing") and not inside_any(one.by, ("testing", *TESTING_USERS)):
            found.append(f"{one}, which only {', '.join(TESTING_USERS)} may")
    return found


def cycle_complaints(tree: dict[str, str]) -> list[str]:
    graph: dict[str, set[str]] = {name: set() for name in tree}
    for one in imports(tree)[0]:
        graph[one.by].add(one.target)
    done: set[str] = set()
    found = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            ring = [*path[path.index(name) :], name]
            found.append("a cycle: " + " -> ".join(part or PACKAGE for part in ring))
        elif name not in done:
            for target in sorted(graph.get(name, ())):
                visit(target, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())
    return found


def ban_complaints(tree: dict[str, str]) -> list[str]:
    found = []
    for one in imports(tree)[1]:
        for ban in BANS:
            if not inside_any(one.target, ban.modules):
                continue
            if ban.everywhere_but:
                if inside_any(one.by, ban.everywhere_but):
                    found.append(f"{one}, which {', '.join(ban.everywhere_but)} may not")
            elif not inside_any(one.by, ban.allowed) and not (
                one.lazy and inside_any(one.by, ban.lazily)
            ):
                found.append(f"{one}, which only {', '.join(ban.allowed + ban.lazily)} may")
    return found


# ---------------------------------------------------------------- functions, classes, files

Function = ast.FunctionDef | ast.AsyncFunctionDef


def docstring_lines(node: ast.AST) -> int:
    can = isinstance(node, Function | ast.ClassDef | ast.Module)
    if can and ast.get_docstring(node) is not None:
        first = node.body[0]
        return (first.end_lineno or first.lineno) - first.lineno + 1
    return 0


def function_complaints(name: str, source: str) -> list[str]:
    """Complain about long functions and bare excepts."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node)
            if lines > LONGEST_FUNCTION:
                found.append(f"{name}:{node.lineno} {node.name} has {lines} lines")
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append(f"{name}:{node.lineno} a bare except")
    return found


def file_complaints(name: str, source: str) -> list[str]:
    lines = len(source.splitlines())
    return [f"{name} has {lines} lines"] if lines > LONGEST_FILE else []


def is_public(name: str) -> bool:
    return not name.startswith("_")


def documents_itself(node: Function | ast.ClassDef) -> bool:
    """Tell whether a definition needs no docstring: another one of its name carries it."""
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    return any(
        mark.rpartition(".")[2] in {"overload", "setter", "deleter", "override"} for mark in marks
    )


def docstring_complaints(name: str, source: str) -> list[str]:
    """Complain about public modules, classes, functions and methods that say nothing."""
    if not all(is_public(part) for part in name.split(".")):
        return []
    module = ast.parse(source)
    found = [] if ast.get_docstring(module) else [f"{name or PACKAGE} has no docstring"]

    def look(owner: ast.Module | ast.ClassDef, prefix: str) -> None:
        for node in owner.body:
            if not isinstance(node, Function | ast.ClassDef) or not is_public(node.name):
                continue
            if not ast.get_docstring(node) and not documents_itself(node):
                found.append(f"{name}:{node.lineno} {prefix}{node.name} has no docstring")
            if isinstance(node, ast.ClassDef):
                look(node, f"{prefix}{node.name}.")

    look(module, "")
    return found


# ---------------------------------------------------------------- sleeping tests

EXCUSE = "# fake time"


def sleep_complaints(name: str, source: str) -> list[str]:
    """Complain about real sleeping; a loop on a fake clock is excused by a comment on the line."""
    module = ast.parse(source)
    lines = source.splitlines()
    sleepers = {"time.sleep", "asyncio.sleep", "anyio.sleep", "trio.sleep"}
    meant: dict[str, str] = {}
    for node, _ in import_nodes(module):
        start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        meant |= {alias.asname or alias.name: start + alias.name for alias in node.names}
    found = []
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        head, dot, tail = ast.unparse(node.func).partition(".")
        zero = [ast.unparse(argument) for argument in node.args] in (["0"], ["0.0"])
        if meant.get(head, "") + dot + tail not in sleepers or zero:
            continue
        if EXCUSE not in lines[node.lineno - 1]:
            found.append(f"{name}:{node.lineno} {ast.unparse(node)}")
    return found


# ---------------------------------------------------------------- texts

MACHINE = re.compile(r"(?<![\w.:/~}-])/(?:root|home|work)\b(?!:)")
REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|deb\.debian\.org|anaconda\.org", re.IGNORECASE
)


def text_complaints(name: str, text: str) -> list[str]:
    """Complain about paths of one machine and about hosts of package registries."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in (("a machine's path", MACHINE), ("a registry's host", REGISTRY)):
            if pattern.search(line):
                found.append(f"{name}:{number} {what}: {line.strip()[:80]}")
    return found


FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?:\{code-block\} ?)?(?:python3?|py|pycon)\b[^\n]*\n"
    r"(?P<code>.*?)^ *(?P=ticks) *$",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)
NOT_RUN = re.compile(r"<!-- not run(?::[^>]*)? -->\s*\Z")


@dataclass(frozen=True)
class Block:
    line: int
    code: str


def python_blocks(text: str) -> list[Block]:
    """Find the Python blocks of a page that are to be run, with the line of their first line."""
    found = []
    for match in FENCE.finditer(text):
        if NOT_RUN.search(text[: match.start()]):
            continue
        indent = match["indent"]
        code = re.sub(f"^{indent}", "", match["code"], flags=re.MULTILINE)
        found.append(Block(text.count("\n", 0, match.start("code")) + 1, code))
    return found


# ---------------------------------------------------------------- versions


def version_of(source: str) -> str | None:
    match = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    return match[1] if match else None


def version_complaints(version: str, files: dict[str, str], changelog: str) -> list[str]:
    """Complain if the version is written down twice, or if the changelog does not know it."""
    literal = re.compile(rf"(?<![\w.]){re.escape(version)}(?![\w.])")
    places = [name for name, text in files.items() for _ in literal.finditer(text)]
    found = [] if len(places) == 1 else [f"{version} stands in {places}"]
    if not re.search(rf"^## \[?{re.escape(version)}\]?", changelog, re.MULTILINE):
        found.append(f"the changelog has no entry for {version}")
    return found
