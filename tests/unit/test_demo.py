"""The demo: how it draws, how it counts its claims, which look it takes."""

from __future__ import annotations

import io
import re
import sys

import pytest

from timebounds import demo
from timebounds.demo import flags, loopback, offloading, scripted
from timebounds.demo.lanes import Bar, Lane, Lanes, Mark, Span, draw_lanes, lanes_legend
from timebounds.demo.story import Story
from timebounds.demo.waterfall import LOOKS, WIDTH, Chart, Kind, Row, draw, legend

PLAIN, RICH = LOOKS["plain"], LOOKS["rich"]
SGR = re.compile(r"\x1b\[[0-9;]*m")

CHART = Chart(
    "Two reads and a backoff",
    (
        Row("read 1", 0.0, 0.5, Kind.EMPTY, "limit 0.5 s"),
        Row("backoff", 0.5, 1.0, Kind.BACKOFF),
        Row("read 2", 1.0, 2.0, Kind.READ, "AB"),
    ),
    span=2.5,
    limit=1.5,
    limit_name="deadline",
    verdict=("late by 0.5 s",),
)


def test_a_chart_shows_waits_backoff_the_limit_and_what_was_beyond_it():
    expected = """\
  Two reads and a backoff
           0         0.5       1         1.5       2         2.5 s
           +---------+---------+---------+---------+---------+
  read 1   ----------x                   |                      limit 0.5 s
  backoff            ~~~~~~~~~~~         |
  read 2                       ----------|#########o            AB
                                         | deadline 1.5 s
  late by 0.5 s"""
    assert draw(CHART, PLAIN) == expected.splitlines()


def test_the_rich_look_draws_the_same_with_other_characters():
    plain, rich = draw(CHART, PLAIN), draw(CHART, RICH)
    to_plain = dict(zip(RICH.characters, PLAIN.characters.replace("held", "h"), strict=False))
    seen = [SGR.sub("", line) for line in rich]
    assert rich != seen
    assert [len(line) for line in seen] == [len(line) for line in plain]
    assert seen[3].translate(str.maketrans(to_plain)) == plain[3]


def test_each_colour_ends_on_the_line_where_it_began():
    for line in [*draw(CHART, RICH), *legend(RICH)]:
        codes = SGR.findall(line)
        assert all(code != "\x1b[0m" for code in codes[::2]), line
        assert all(code == "\x1b[0m" for code in codes[1::2]), line
        assert len(codes) % 2 == 0


def test_a_chart_without_a_limit_has_no_line():
    free = Chart("free", CHART.rows, 2.5, None, "")
    assert not [line for line in draw(free, PLAIN) if "|" in line or "#" in line]


def test_the_name_of_a_limit_stands_where_there_is_room():
    name = "a long name of a deadline"
    lines = draw(Chart("t", (), 2.5, 2.5, name), PLAIN)
    assert lines[-1].endswith(f"{name} 2.5 s |")
    assert max(map(len, lines)) <= WIDTH


def test_what_does_not_fit_is_cut():
    row = Row("read 1", 0.0, 99.0, Kind.READ, "x" * 99)
    lines = draw(Chart("t", (row,), 1.0, None, ""), PLAIN)
    assert max(map(len, lines)) == WIDTH
    assert lines[-1].index("o") == lines[2].rindex("+")


@pytest.mark.parametrize("span", [0.2, 1.75, 80, 1000])
def test_an_axis_has_a_few_ticks_from_zero_on(span):
    _, numbers, ruler = draw(Chart("t", (), span, None, ""), PLAIN)
    assert 2 <= ruler.count("+") <= 9
    assert numbers.split()[0] == "0"
    assert ruler.index("+") == numbers.index("0")


def test_the_plain_look_is_ascii():
    assert "".join([PLAIN.characters, *draw(CHART, PLAIN), *legend(PLAIN)]).isascii()
    assert not SGR.search("".join(draw(CHART, PLAIN)))


# ---------------------------------------------------------------- lanes

LANES = Lanes(
    "A task and its thread",
    (
        Lane(
            "task",
            (Span(0.0, 0.5, Bar.BUSY), Span(0.5, 1.0, Bar.HELD)),
            ((Mark.REQUESTED, 0.5), (Mark.CANCELLED, 1.0)),
            "one cancel",
        ),
        Lane(
            "thread",
            (Span(0.0, 0.5, Bar.BUSY), Span(0.5, 2.0, Bar.ALONE)),
            ((Mark.WOKEN, 0.5), (Mark.OBSERVED, 0.5), (Mark.FINISHED, 0.51), (Mark.EFFECT, 2.5)),
        ),
    ),
    span=2.5,
    verdict=("over",),
)


def test_lanes_share_an_axis_and_marks_of_one_moment_stand_side_by_side():
    expected = """\
  A task and its thread
           0         0.5       1         1.5       2         2.5 s
           +---------+---------+---------+---------+---------+
  task     ----------R~~~~~~~~~C                                one cancel
  thread   ----------WOF############################         E
  over"""
    assert draw_lanes(LANES, PLAIN) == expected.splitlines()


def test_the_legend_of_the_lanes_names_each_bar_and_mark_once():
    text = "\n".join(lanes_legend(PLAIN))
    assert text.isascii()
    for each in Bar:
        assert text.count(each.value) == 1
    for each in Mark:
        assert text.count(f"{each.letter}     {each.words}") == 1
    assert len({each.letter for each in Mark}) == len(Mark)


def test_lanes_look_the_same_in_colour():
    plain = [*draw_lanes(LANES, PLAIN), *lanes_legend(PLAIN)]
    rich = [SGR.sub("", line) for line in [*draw_lanes(LANES, RICH), *lanes_legend(RICH)]]
    to_plain = str.maketrans(RICH.characters[:8], "".join(PLAIN.characters[:8]))
    assert [line.translate(to_plain) for line in rich] == plain
    assert max(map(len, plain)) <= WIDTH


def test_what_does_not_fit_into_a_lane_is_cut():
    marks = ((Mark.FINISHED, 98.0), (Mark.CLOSED, 99.0))
    lane = Lane("task", (Span(0.0, 99.0, Bar.BUSY),), marks, "x" * 99)
    line = draw_lanes(Lanes("t", (lane,), 1.0), PLAIN)[-1]
    assert len(line) == WIDTH
    assert "FX" not in line, "the last column is the last mark's"


# ---------------------------------------------------------------- claims and status


def test_part_one_holds_every_figure_of_the_table(capsys):
    assert demo.run(["demo", "--plain"], [scripted.tell]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= WIDTH
    assert out.count("[held]") == 5
    assert out.endswith("All 5 claims held.\n")


def test_a_figure_that_is_wrong_fails_its_claim_alone(monkeypatch, capsys):
    monkeypatch.setitem(scripted.SHARED, 2.0, scripted.SHARED[2.0]._replace(time=2.0000001))
    assert demo.run(["demo", "--plain"], [scripted.tell]) == 1
    out = capsys.readouterr().out
    assert out.count("[held]") == 4
    assert "[FAILED] one deadline of 2 s" in out
    assert "1 of 5 claims failed:\n  one deadline of 2 s" in out


def one_of_two(story):
    story.claim("water is wet", held=True)
    story.claim("pigs fly", held=False)


def test_a_claim_that_fails_gives_status_one_and_is_named_at_the_end(capsys):
    assert demo.run(["demo"], [one_of_two]) == 1
    assert capsys.readouterr().out.endswith("1 of 2 claims failed:\n  pigs fly\n")


@pytest.mark.parametrize("error", [PermissionError("no sockets here"), EOFError("gone")])
def test_a_part_that_cannot_run_is_a_failed_claim_and_the_next_part_follows(error, capsys):
    def no_sockets(story):
        raise error

    assert demo.run(["demo"], [no_sockets, one_of_two]) == 1
    out = capsys.readouterr().out
    assert "[FAILED] this part runs to its end" in out
    assert "2 of 3 claims failed" in out


def test_an_error_of_its_own_is_not_hidden():
    def broken(story):
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        demo.run(["demo"], [broken])


def test_a_reader_who_went_away_gives_status_one_in_silence(monkeypatch, tmp_path):
    def gone(story):
        raise BrokenPipeError

    path = tmp_path / "out"
    with path.open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert demo.run(["demo"], [gone, one_of_two]) == 1
        print("lost", file=out, flush=True)
    assert path.read_text() == ""


def test_without_a_command_it_shows_what_there_is(capsys):
    assert demo.run([]) == 0
    assert "demo" in capsys.readouterr().out


def test_an_unknown_argument_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        demo.run(["demo", "--pla"])
    assert stopped.value.code == 2
    assert "--pla" in capsys.readouterr().err


# ---------------------------------------------------------------- looks


class Terminal(io.TextIOWrapper):
    def __init__(self, encoding="utf-8"):
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self):
        return True


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


def look_of(out, *arguments, monkeypatch):
    monkeypatch.setattr(sys, "stdout", out)
    looks = []
    demo.run(["demo", *arguments], [lambda story: looks.append(story._look)])
    return looks[0]


def test_a_terminal_gets_the_rich_look(environment):
    assert look_of(Terminal(), monkeypatch=environment) is RICH


def test_plain_is_plain_on_a_terminal_too(environment):
    assert look_of(Terminal(), "--plain", monkeypatch=environment) is PLAIN


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_the_environment_may_ask_for_the_plain_look(name, value, environment):
    environment.setenv(name, value)
    assert look_of(Terminal(), monkeypatch=environment) is PLAIN


def test_an_encoding_without_the_characters_gets_the_plain_look(environment):
    assert look_of(Terminal("latin-1"), monkeypatch=environment) is PLAIN


def test_a_pipe_gets_the_plain_look(environment):
    assert look_of(io.StringIO(), monkeypatch=environment) is PLAIN


def test_the_rich_look_of_a_whole_part_is_as_wide_as_a_terminal():
    out = io.StringIO()
    scripted.tell(Story(out, RICH))
    text = out.getvalue()
    assert max(len(SGR.sub("", line)) for line in text.splitlines()) <= WIDTH
    assert text.count("✓") == 5


# ---------------------------------------------------------------- tries


def test_the_first_good_try_counts():
    tries = iter([1, 2, 3, 4])
    assert loopback.best(lambda: next(tries), lambda found: found == 2) == (2, 2)


def test_the_last_try_counts_when_none_was_good():
    tries = iter([1, 2, 3, 4])
    assert loopback.best(lambda: next(tries), lambda found: False) == (3, 3)


# ---------------------------------------------------------------- part three


@pytest.mark.parametrize(("order", "effect", "told"), flags.ORDERS)
def test_a_flag_is_as_good_as_the_moment_in_which_it_is_looked_at(order, effect, told):
    """O10, T3."""
    assert flags.in_order(order) == (effect, told)


GOOD_ALONE = offloading.Seen(
    tuple(zip(offloading.ALONE, (0.0, 0.2, 0.2, 0.4), strict=True)), -1, 1, 1, 1, 1
)
GOOD_TOGETHER = offloading.Seen(
    tuple(zip(offloading.TOGETHER, (0.0, 0.2, 0.2, 0.4, 0.5, 0.5), strict=True)), 7, 0, 1, 1, 100
)


def told(monkeypatch, capsys, alone=GOOD_ALONE, together=GOOD_TOGETHER):
    monkeypatch.setattr(offloading, "uncoordinated", lambda: alone)
    monkeypatch.setattr(offloading, "coordinated", lambda: together)
    status = demo.run(["demo", "--plain"], [offloading.tell])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= WIDTH
    assert (status == 0) is ("[FAILED]" not in out)
    return [line.strip() for line in out.splitlines() if "[FAILED]" in line]


def test_part_three_holds_every_claim(monkeypatch, capsys):
    assert told(monkeypatch, capsys) == []


@pytest.mark.parametrize(
    ("changed", "failed"),
    [
        ({"events": GOOD_ALONE.events[::-1]}, "the caller released, and"),
        ({"effects": 0}, "the caller released, and"),
        ({"descriptor": 7}, "was closed under the thread"),
    ],
)
def test_a_thread_that_does_not_go_on_alone_fails_its_claim(changed, failed, monkeypatch, capsys):
    (line,) = told(monkeypatch, capsys, alone=GOOD_ALONE._replace(**changed))
    assert failed in line


@pytest.mark.parametrize(
    ("changed", "failed"),
    [
        ({"events": GOOD_TOGETHER.events[::-1]}, "then the cancellation"),
        ({"events": GOOD_TOGETHER.events[:-1]}, "then the cancellation"),
        ({"descriptor": -1}, "open at the function's last line"),
        ({"closings": 2}, "closed once"),
        ({"errors": 2}, "one CancelledError"),
        ({"cancelling": 99}, "one CancelledError"),
        ({"effects": 1}, "no side effect"),
    ],
)
def test_an_offload_out_of_order_fails_its_claim(changed, failed, monkeypatch, capsys):
    (line,) = told(monkeypatch, capsys, together=GOOD_TOGETHER._replace(**changed))
    assert failed in line


def test_a_flag_that_answers_otherwise_fails_its_claim(monkeypatch, capsys):
    monkeypatch.setattr(flags, "ORDERS", [(("request", "check"), True, "accepted")])
    (line,) = told(monkeypatch, capsys)
    assert "request, check" in line
