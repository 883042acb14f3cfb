"""Requirement ids: each of the mission's 27 demands has a test, and no test names a demand that does not exist."""

import ast
import re
from pathlib import Path

DEMANDS = range(1, 28)
BENCHES = Path(__file__).parents[1] / "bench"


def demands_of_tests() -> dict[int, list[str]]:
    """Demand -> the tests of this folder whose docstring names it."""
    found: dict[int, list[str]] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number in re.findall(r"\bdemand (\d+)\b", ast.get_docstring(node) or ""):
                    found.setdefault(int(number), []).append(node.name)
    return found


def test_every_demand_has_a_test_and_every_test_names_a_demand_that_exists() -> None:
    assert sorted(demands_of_tests()) == list(DEMANDS)


def test_the_project_ships_a_runtime_baseline_benchmark() -> None:
    """demand 26"""
    benches = {path.name: path.read_text(encoding="utf-8") for path in BENCHES.glob("*.py")}
    timed = [name for name, text in benches.items() if "@pytest.mark.bench" in text or "pytestmark" in text]
    assert timed, f"no benchmark among {sorted(benches)}"
