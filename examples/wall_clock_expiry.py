"""A token is valid until a calendar instant; a call has so many seconds. Two different clocks."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from timebounds import Expiry
from timebounds.testing import FakeClock

clock = FakeClock()
token = Expiry.after(timedelta(minutes=5), clock=clock.wall)
call = clock.deadline(30)
print(token, "fresh:", token.fresh())

# Somebody sets the machine's clock an hour ahead: the data is stale, the call has its 30 s.
clock.step_wall(3600)
print("fresh:", token.fresh(), " seconds left for the call:", call.remaining())
assert token.stale()
assert call.remaining() == 30.0

# A day in Berlin that holds the end of summer time lasts 25 hours.
try:
    berlin = ZoneInfo("Europe/Berlin")
except ZoneInfoNotFoundError:
    print("no time zone data here")
else:
    noon, next_noon = (Expiry.at(datetime(2025, 10, day, 12, tzinfo=berlin)) for day in (25, 26))
    print("from noon to noon:", next_noon.at_utc - noon.at_utc)
