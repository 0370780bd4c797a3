"""What README, docs and examples show is run as it stands there."""

from __future__ import annotations

import doctest
import sys
from types import ModuleType

import pytest

import house_rules as rules
from children import ROOT, python

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
PAGES = [page for page in PAGES if "_build" not in page.parts]
# Those in examples/clients need other libraries and their servers: tests/interop runs them.
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run_page(name: str, text: str) -> None:
    """Run a page's blocks in one namespace; their lines in a traceback are those of the page."""
    # Dataclasses and pickle look their module up by its name.
    module = ModuleType("page")
    sys.modules["page"] = module
    try:
        for block in rules.python_blocks(text):
            if block.code.lstrip().startswith(">>>"):
                run_session(name, block, vars(module))
            else:
                code = "\n" * (block.line - 1) + block.code
                exec(compile(code, name, "exec", dont_inherit=True), vars(module))
    finally:
        del sys.modules["page"]


def run_session(name: str, block: rules.Block, namespace: dict[str, object]) -> None:
    session = doctest.DocTestParser().get_doctest(block.code, {}, name, name, block.line - 1)
    session.globs = namespace
    out: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(session, out=out.append, clear_globs=False)
    assert not runner.failures, "".join(out)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_of_a_page_runs(page):
    run_page(str(page), page.read_text())


@pytest.mark.real
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_an_example_runs(example):
    run = python("-W", "error", example)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    "code",
    [
        "```python\nassert 1 == 2\n```",
        "```python\nx = 1\n```\n\n```python\nassert x == 2\n```",
        "```python\n>>> 1 + 1\n3\n```",
        "```pycon\n>>> x = 1\n```\n\n```pycon\n>>> x\n2\n```",
    ],
)
def test_a_page_whose_code_is_wrong_is_rejected(code):
    with pytest.raises(AssertionError):
        run_page("canary", code)


def test_a_page_shares_its_names_between_blocks():
    run_page("canary", "```python\nx = 1\n```\n\n```python\n>>> x\n1\n```\n\n```py\nassert x\n```")
