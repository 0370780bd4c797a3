"""The rules of the house, held against the tree as it is."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import pytest

import house_rules as rules
import timebounds
from children import ROOT, python

TREE = rules.read_tree(ROOT / "src")
# Folders that hold what tools have made.
MADE = re.compile(
    r"\.git|\.venv.*|\..*_cache|\.cache|\.hypothesis|__pycache__"
    r"|_build|dist|build|mutants|htmlcov"
)
TEXTS = ("", ".cfg", ".ini", ".json", ".md", ".py", ".rst", ".sh", ".toml", ".txt", ".yaml", ".yml")


def own_files(*suffixes: str):
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not MADE.fullmatch(name)]
        for name in names:
            path = ROOT.joinpath(folder, name)
            if path.suffix in suffixes and path.is_file():
                yield path.relative_to(ROOT).as_posix(), path


PYTHON = {name: path.read_text() for name, path in own_files(".py")}


def fail_with(complaints):
    """Show all complaints, one a line, where an assertion would shorten the list."""
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


def each(rule, sources):
    return [line for name, source in sources.items() for line in rule(name, source)]


def test_the_suite_tests_the_copy_that_it_was_told_to_test():
    from_source = ROOT / "src" in Path(timebounds.__file__).parents
    assert from_source != bool(os.environ.get("TIMEBOUNDS_INSTALLED"))


def test_imports_go_down_or_to_the_left():
    fail_with(rules.floor_complaints(TREE))


def test_no_imports_run_in_a_circle():
    fail_with(rules.cycle_complaints(TREE))


def test_time_sockets_loops_threads_and_chance_are_imported_only_where_they_belong():
    fail_with(rules.ban_complaints(TREE))


def test_every_public_definition_has_a_docstring():
    fail_with(each(rules.docstring_complaints, TREE))


def test_functions_are_short_and_no_except_is_bare():
    fail_with(each(rules.function_complaints, PYTHON))


def test_files_of_the_package_are_short():
    fail_with(each(rules.file_complaints, TREE))


def test_tests_do_not_sleep():
    may_sleep = ("tests/real/", "tests/soak/", "tests/house/")
    sources = {
        name: source
        for name, source in PYTHON.items()
        if name.startswith("tests/") and not name.startswith(may_sleep)
    }
    fail_with(each(rules.sleep_complaints, sources))


def test_no_file_names_a_place_on_one_machine_or_a_registry():
    texts = {name: path.read_text(errors="replace") for name, path in own_files(*TEXTS)}
    fail_with(each(rules.text_complaints, texts))


def test_the_version_is_written_once_and_the_changelog_knows_it():
    written = ("src/", "docs/conf.py", "run.py", "examples/", "benchmarks/")
    files = {name: source for name, source in PYTHON.items() if name.startswith(written)}
    files["pyproject.toml"] = (ROOT / "pyproject.toml").read_text()
    version = rules.version_of(TREE[""])
    assert version == timebounds.__version__
    fail_with(rules.version_complaints(version, files, (ROOT / "CHANGELOG.md").read_text()))


def public_names():
    return list(getattr(timebounds, "__all__", ()))


def test_the_public_names_are_sorted_and_there_once():
    # Constants, classes, functions: the order that ruff keeps too.
    def key(name):
        return not name.isupper(), not name[0].isupper(), name

    names = [name for name in public_names() if not name.startswith("__")]
    assert names == sorted(set(names), key=key)


def test_every_public_name_is_there_and_documented():
    assert [name for name in public_names() if not inspect.getdoc(getattr(timebounds, name))] == []


def test_dir_shows_every_public_name():
    assert set(public_names()) <= set(dir(timebounds))


def test_every_public_name_stands_in_the_api_page():
    page = ROOT / "docs" / "api.md"
    if not page.exists():
        pytest.skip("docs/api.md is not written yet")
    text = page.read_text()
    missing = [name for name in public_names() if not re.search(rf"\b{name}\b", text)]
    assert missing == []


def test_importing_the_package_loads_no_loop_no_tls_no_logging_and_starts_no_thread():
    code = (
        "import sys, threading; before = set(sys.modules); import timebounds; "
        "heavy = {'asyncio', 'ssl', 'logging', 'concurrent.futures'}; "
        "print(sorted(heavy & (set(sys.modules) - before)), threading.active_count())"
    )
    run = python("-c", code)
    assert (run.stdout, run.stderr) == ("[] 1\n", "")
