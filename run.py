#!/usr/bin/env python3
"""The one entry: try the library, test it, check it, build it. Standard library only.

    python3 run.py demo          see what it does; installs nothing
    python3 run.py test          the suite, in an environment that is made once
    python3 run.py               the list of verbs

What a verb does not know it passes on: `run.py test -k deadline -x`, `run.py demo --plain`.
"""

# Nothing here may be newer than Python 3.5's grammar (no f-string, no annotated variable): an old
# Python must be able to read this file in order to say that it is too old.

import sys

OLDEST = (3, 11)
if sys.version_info < OLDEST:
    sys.exit(
        "timebounds needs Python %d.%d or later, and this is %s (%s).\nTry: python3.13 run.py"
        % (OLDEST[0], OLDEST[1], sys.version.split()[0], sys.executable)
    )

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
LOCKS = ROOT / "requirements"
SUPPORTED = ("3.11", "3.12", "3.13")
THIS = "%d.%d" % sys.version_info[:2]
GROUPS = ("test", "lint", "types", "docs", "package", "cover", "mutate", "interop")

LINTED = ("src", "tests", "docs", "examples", "benchmarks", "run.py")
SHIPPED = (*LINTED, "requirements", "README.md", "CHANGELOG.md", "LICENSE")


class Failed(Exception):
    """A step ended badly; its own output has said why."""


# ---------------------------------------------------------------- running things


def say(text: str) -> None:
    print("== " + text, flush=True)


def run(*command: "str | Path", env: "dict | None" = None, cwd: Path = ROOT) -> None:
    """Run one command in the open; raise Failed when it ends badly."""
    parts = [str(part) for part in command]
    status = subprocess.call(parts, cwd=str(cwd), env=dict(os.environ, **(env or {})))
    if status:
        raise Failed("exit %d: %s" % (status, " ".join(parts)))


def module(python: "str | Path", words: str, *more: "str | Path", **how: object) -> None:
    """Run a module: its name and fixed arguments in one string, the others one by one."""
    run(python, "-m", *words.split(), *more, **how)


def pip_install(python: Path, words: str, *more: "str | Path") -> None:
    module(python, "pip --disable-pip-version-check install --quiet " + words, *more)


def output(*command: "str | Path") -> "list[str]":
    """Give the lines that a command prints; none if it cannot be run or fails."""
    parts = [str(part) for part in command]
    try:
        out = subprocess.run(parts, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return [] if out.returncode else out.stdout.splitlines()


def shown(path: Path) -> str:
    """Give a path as seen from the root, for messages."""
    return os.path.relpath(str(path), str(ROOT)) if ROOT in path.parents else str(path)


# ---------------------------------------------------------------- interpreters


def answers(command: "str | Path", version: str) -> "str | None":
    """Give the real path of an interpreter if it starts and has that version, else None."""
    code = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.executable)"
    lines = output(command, "-c", code)
    return lines[1] if lines[:1] == [version] else None


def pyenv_root() -> "Path | None":
    # The shims that pyenv puts on PATH answer only for the versions it was told to use.
    lines = output("pyenv", "root")
    return Path(lines[0]) if lines else None


def find_python(version: str) -> "str | None":
    """Find an interpreter of this minor version, or None."""
    if version == THIS:
        return base_python()
    found = answers("python" + version, version)
    root = None if found else pyenv_root()
    if root:
        for home in sorted((root / "versions").glob(version + ".*"), reverse=True):
            found = found or answers(home / "bin" / "python", version)
    return found


def base_python() -> str:
    """The running interpreter, or, inside an environment, the one it was made from."""
    if sys.prefix == sys.base_prefix:
        return sys.executable
    return answers(Path(sys.base_prefix) / "bin" / ("python" + THIS), THIS) or sys.executable


def chosen(wanted: "str | None") -> "list[tuple[str, str]]":
    """Turn --python into a list of (version, interpreter)."""
    if wanted is None:
        return [(THIS, base_python())]
    if wanted == "all":
        found = [(version, find_python(version)) for version in SUPPORTED]
        for version, path in found:
            if path is None:
                say("Python %s is not here: left out" % version)
        return [(version, path) for version, path in found if path]
    version = re.sub("^python", "", wanted)
    path = find_python(version) if version in SUPPORTED else None
    if path is None:
        raise Failed("no Python %s here; supported: %s, all" % (version, ", ".join(SUPPORTED)))
    return [(version, path)]


# ---------------------------------------------------------------- environments

NO_VENV = (
    "%s cannot make virtual environments: its venv or ensurepip is missing.\n"
    "On Debian and Ubuntu: apt-get install python3-venv. `run.py demo` works without."
)


def stamp_of(group: str) -> str:
    return hashlib.sha256((LOCKS / (group + ".txt")).read_bytes()).hexdigest()


def make_environment(home: Path, python: str) -> None:
    say("making %s with %s" % (shown(home), python))
    command = [python, "-m", "venv", "--clear", str(home)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        shutil.rmtree(str(home), ignore_errors=True)
        print((made.stdout + made.stderr).strip())
        raise Failed(NO_VENV % python)


def install_locked(inside: Path, group: str) -> None:
    say("installing requirements/%s.txt" % group)
    pip_install(inside, "--require-hashes --only-binary :all: -r", LOCKS / (group + ".txt"))


def environment(group: str, version: str, python: str) -> Path:
    """Give the interpreter of a group's environment, made anew when its lock has changed."""
    name = ".venv" if group == "test" else ".venv-" + group
    home = ROOT / (name if version == THIS else name + "-" + version)
    inside = home / "bin" / "python"
    mark = home / ".locked"
    # Environments of another minor version may stand here under the same name.
    stamp = version + " " + stamp_of(group)
    if not (inside.exists() and mark.exists() and mark.read_text() == stamp):
        make_environment(home, python)
        install_locked(inside, group)
        mark.write_text(stamp)
    return inside


def tools(group: str) -> Path:
    return environment(group, THIS, base_python())


def see_source(inside: Path) -> None:
    """Let an environment import the package from src, as an editable install would."""
    home = str(inside.parents[1])
    packages = sysconfig.get_path("purelib", "venv", {"base": home, "platbase": home})
    (Path(packages) / "timebounds-src.pth").write_text(str(ROOT / "src") + "\n")


# ---------------------------------------------------------------- verbs


def suite(options: argparse.Namespace, marks: str, *more: str) -> None:
    for version, python in chosen(options.python):
        inside = environment("test", version, python)
        say("tests on Python %s" % version)
        run(inside, "-X", "dev", "-m", "pytest", "-m", marks, *more, *options.rest)


def demo(options: argparse.Namespace) -> None:
    """Show the library at work; installs nothing."""
    # The tree that a newcomer has just unpacked stays as it is.
    env = {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    for _, python in chosen(options.python):
        module(python, "timebounds demo", *options.rest, env=env)


# What has a verb of its own is in no other run.
ORDINARY = "not soak and not suites"


def test(options: argparse.Namespace) -> None:
    """Run the suite, all but the soak and the interpreter's own."""
    suite(options, ORDINARY)


def fast(options: argparse.Namespace) -> None:
    """Run what takes under a minute."""
    suite(options, ORDINARY + " and not slow and not real")


def interop(options: argparse.Namespace) -> None:
    """Run what compares with other libraries, in an environment that has them."""
    for version, python in chosen(options.python):
        inside = environment("interop", version, python)
        say("comparisons on Python %s" % version)
        data = ROOT / ".cache" / ("interop-" + version)
        data.parent.mkdir(exist_ok=True)
        env = {"COVERAGE_FILE": str(data)}
        # All of the folder but what `run.py cover` measures.
        mine = "--omit=*/interop/http_client.py,*/interop/_dialing.py"
        words = "-X dev -m coverage run --source=src/timebounds/interop %s -m pytest tests/interop"
        run(inside, *(words % mine).split(), *options.rest, env=env)
        # Of a part of the tests it would say nothing.
        if not options.rest:
            module(inside, "coverage report", mine, env=env)


def soak(options: argparse.Namespace) -> None:
    """Run the long tests alone."""
    suite(options, "soak", "--hypothesis-profile=soak")


def suites(options: argparse.Namespace) -> None:
    """Run the interpreter's own tests of clients over the drop-in socket."""
    suite(options, "suites", "tests/real/test_cpython_suites.py", "-q", "-rP")


def lint(options: argparse.Namespace) -> None:
    """Check style and format with ruff."""
    inside = tools("lint")
    paths = [path for path in LINTED if (ROOT / path).exists()]
    module(inside, "ruff check", *options.rest, *paths)
    module(inside, "ruff format --check", *paths)


def types(options: argparse.Namespace) -> None:
    """Check types with mypy and pyright, and that each public name has one."""
    inside = tools("types")
    see_source(inside)
    cases = ["tests/typing"] if any((ROOT / "tests" / "typing").rglob("*.py")) else []
    for version in SUPPORTED:
        say("mypy for Python %s" % version)
        module(inside, "mypy --strict --python-version", version, "src", *cases, *options.rest)
    # --verifytypes looks at no option, and asks the first `python` on PATH where packages are.
    path = str(inside.parent) + os.pathsep + os.environ.get("PATH", os.defpath)
    # The wrapper would ask for a newer version at each start.
    env = {"PATH": path, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    say("pyright")
    module(inside, "pyright", env=env)
    say("pyright: the public names")
    module(inside, "pyright --ignoreexternal --verifytypes timebounds", env=env)


def cover(options: argparse.Namespace) -> None:
    """Measure lines and branches; less than all of them is a failure."""
    for version, python in chosen(options.python):
        inside = environment("cover", version, python)
        data = ROOT / ".cache" / ("coverage-" + version)
        data.parent.mkdir(exist_ok=True)
        env = {"COVERAGE_FILE": str(data)}
        say("coverage on Python %s" % version)
        words = "coverage run -m pytest -q -m"
        module(inside, words, ORDINARY, *options.rest, env=env)
        module(inside, "coverage report", env=env)


def mutate(options: argparse.Namespace) -> None:
    """Change the source in small ways and see whether the tests notice; takes long."""
    inside = tools("mutate")
    run(inside, ROOT / "tests" / "support" / "mutation.py", "run", *options.rest)
    module(inside, "mutmut results")


def bench(options: argparse.Namespace) -> None:
    """Run each benchmark, in an environment that has the peers they are measured beside."""
    env = {"PYTHONPATH": str(ROOT / "src")}
    for version, python in chosen(options.python):
        inside = environment("interop", version, python)
        for script in sorted((ROOT / "benchmarks").glob("bench_*.py")):
            say(shown(script))
            run(inside, script, *options.rest, env=env)


def docs(options: argparse.Namespace) -> None:
    """Build the pages; a warning is a failure."""
    inside = tools("docs")
    out = ROOT / "docs" / "_build"
    env = {"PYTHONPATH": str(ROOT / "src")}
    # -E: a page that did not change may point to one that did.
    module(inside, "sphinx -W --keep-going -q -E", *options.rest, ROOT / "docs", out, env=env)
    say("see %s" % shown(out / "index.html"))


def package(options: argparse.Namespace) -> None:
    """Build the sdist and the wheel, look into them, run the suite against the wheel."""
    inside = tools("package")
    dist = ROOT / "dist"
    shutil.rmtree(str(dist), ignore_errors=True)
    # No isolation: the build runs with the pinned back end, and asks no registry.
    module(inside, "build --no-isolation --outdir", dist)
    wheel = next(dist.glob("*.whl"))
    sdist = next(dist.glob("*.tar.gz"))
    module(inside, "twine check --strict", wheel, sdist)
    tops = {name.split("/")[0] for name in files_below(ROOT / "src")}
    run(inside.parent / "check-wheel-contents", "--toplevel", ",".join(sorted(tops)), wheel)
    check_contents(wheel, sdist)
    for version, python in chosen(options.python):
        check_installed(wheel, sdist, version, python, options.rest)


def files_below(folder: Path) -> "set[str]":
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def check_contents(wheel: Path, sdist: Path) -> None:
    """See that the wheel holds all of src and nothing else, and the sdist the whole project."""
    with zipfile.ZipFile(str(wheel)) as archive:
        code = {name for name in archive.namelist() if ".dist-info/" not in name}
    difference = code ^ files_below(ROOT / "src")
    if difference or "timebounds/py.typed" not in code:
        raise Failed("the wheel and src differ: %s" % sorted(difference))
    with tarfile.open(str(sdist)) as archive:
        held = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    missing = [name for name in SHIPPED if name not in held]
    if missing:
        raise Failed("the sdist lacks %s" % ", ".join(missing))
    say("%s and %s hold what they should" % (wheel.name, sdist.name))


def check_installed(wheel: Path, sdist: Path, version: str, python: str, rest: list) -> None:
    """Run the suite as unpacked from the sdist, against the wheel in a clean environment."""
    with tempfile.TemporaryDirectory(prefix="timebounds-") as folder:
        home = Path(folder) / "venv"
        inside = home / "bin" / "python"
        make_environment(home, python)
        install_locked(inside, "test")
        pip_install(inside, "--no-deps --no-index", wheel)
        # Python 3.14 makes the filter the default; the first releases of 3.11 do not know it.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        shutil.unpack_archive(str(sdist), folder, **safely)
        tree = Path(folder) / sdist.name[: -len(".tar.gz")]
        say("tests against the wheel on Python %s" % version)
        words = "-X dev -m pytest -q -o pythonpath=tests/support -m"
        env = {"TIMEBOUNDS_INSTALLED": "1"}
        run(inside, *words.split(), ORDINARY, *rest, env=env, cwd=tree)


def lock(options: argparse.Namespace) -> None:
    """Make requirements/*.txt anew from the groups in pyproject.toml."""
    words = (
        "pip compile --quiet --universal --generate-hashes --no-header --no-annotate"
        " --no-emit-index-url --no-emit-find-links --python-version " + SUPPORTED[0]
    )
    with tempfile.TemporaryDirectory(prefix="timebounds-") as folder:
        make_environment(Path(folder), base_python())
        inside = Path(folder) / "bin" / "python"
        pip_install(inside, "uv")
        for group in GROUPS:
            say("requirements/%s.txt" % group)
            out = LOCKS / (group + ".txt")
            module(inside, "uv " + words, "--group", group, "--output-file", out, *options.rest)


def everything(options: argparse.Namespace) -> None:
    """Run test, lint, types, cover, docs, package and the demo in turn."""
    for verb in (test, lint, types, cover, docs, package, demo):
        say(verb.__name__)
        verb(options)


VERBS = {
    "demo": demo,
    "test": test,
    "fast": fast,
    "interop": interop,
    "soak": soak,
    "suites": suites,
    "lint": lint,
    "types": types,
    "cover": cover,
    "mutate": mutate,
    "bench": bench,
    "docs": docs,
    "package": package,
    "all": everything,
    "lock": lock,
}


def parse(arguments: "list[str]") -> argparse.Namespace:
    first_lines = "\n".join(
        "  %-8s %s" % (name, verb.__doc__.splitlines()[0]) for name, verb in VERBS.items()
    )
    parser = argparse.ArgumentParser(
        prog="run.py",
        usage="python3 run.py VERB [--python VERSION|all] [what the tool behind it takes]",
        description="verbs:\n" + first_lines,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("verb", choices=VERBS, metavar="VERB", nargs="?")
    parser.add_argument(
        "--python", metavar="VERSION", help="3.11, 3.12, 3.13 or all; else this one"
    )
    options, options.rest = parser.parse_known_args(arguments)
    if options.verb is None:
        parser.print_help()
    return options


def main(arguments: "list[str]") -> int:
    options = parse(arguments)
    if options.verb is None:
        return 0
    began = time.monotonic()
    try:
        VERBS[options.verb](options)
    except Failed as failure:
        print("run.py %s: %s" % (options.verb, failure), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    say("%s: well after %.1f s" % (options.verb, time.monotonic() - began))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
