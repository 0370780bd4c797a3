"""Each public failure that the library has taken on is named by the test that excludes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

CASES = [f"A{n:02}" for n in range(1, 88)]


def named():
    """The ids in the docstrings of test functions."""
    found = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for case in re.findall(r"\bA\d\d\b", ast.get_docstring(node) or ""):
                    found.setdefault(case, []).append(node.name)
    return found


NAMED = named()


@pytest.mark.parametrize("case", CASES)
def test_the_case_has_a_test(case):
    assert NAMED.get(case), f"no test names {case}"
