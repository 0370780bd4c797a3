"""The plugin's loops in the plugins that others use for async tests, as its documentation says."""

from __future__ import annotations

import pytest

from children import all_passed, run_pytest

ANYIO = """
    import asyncio

    import pytest

    anyio = pytest.importorskip("anyio")

    @pytest.fixture
    def anyio_backend(virtual_loop):
        return "asyncio", {"loop_factory": virtual_loop}

    @pytest.mark.anyio
    async def test_anyio(no_leaks, fake_clock, anyio_backend):
        with anyio.move_on_after(3600) as scope:
            await anyio.sleep(7200)
        assert scope.cancelled_caught
        assert fake_clock.now() == 3600.0
"""

PYTEST_ASYNCIO = """
    import asyncio

    import pytest

    pytest.importorskip("pytest_asyncio")

    @pytest.fixture
    def event_loop_policy(virtual_loop):
        class Policy(asyncio.DefaultEventLoopPolicy):
            def new_event_loop(self):
                return virtual_loop()

        return Policy()

    @pytest.mark.asyncio
    async def test_asyncio(fake_clock):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.sleep(7200)
        assert fake_clock.now() == 3600.0
"""


@pytest.mark.parametrize(
    ("module", "source", "options"),
    [("anyio", ANYIO, ()), ("pytest_asyncio", PYTEST_ASYNCIO, ("--asyncio-mode=strict",))],
)
def test_the_virtual_loop_works_in_plugins_for_async_tests(tmp_path, module, source, options):
    """F3: an hour of fake time, by a fixture of three lines."""
    pytest.importorskip(module, reason=f"no {module} here")
    outcomes, text = run_pytest(tmp_path, source, *options)
    assert all_passed(outcomes), text
