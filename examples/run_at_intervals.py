"""A fixed rate, a time of day, and three minutes in which the process was frozen."""

from datetime import time

from timebounds import Daily, Every, Missed, Missing, Repeated, Scheduler
from timebounds.testing import FakeClock

clock = FakeClock(auto_advance=True)  # in a service: nothing, the default is a real clock
scheduler = Scheduler(
    clock=clock,
    wall=clock.wall,
    on_missed=lambda job, count: print(f"{clock.now():6g} s  {job.name}: {count} missed"),
)


def show(tick):
    print(f"{clock.now():6g} s  {tick.key}, {tick.late:g} s late")


scheduler.add(Every(60), show, name="poll", limit=10)
scheduler.add(Every(60, missed=Missed.skip()), show, name="metrics")
scheduler.add(
    Daily(time(0, 4), zone="UTC", repeated=Repeated.FIRST, missing=Missing.SHIFT),
    show,
    name="report",
)
clock.jump(185)
print(scheduler.run(clock.deadline(120)))
