"""The plugin's loops in the plugins that others use for async tests, as its documentation says."""

from __future__ import annotations

import pytest

from children import all_passed, run_pytest


def test_the_virtual_loop_works_in_the_plugin_of_anyio(tmp_path):
    """F3: an hour of fake time, by a fixture of three lines."""
    pytest.importorskip("anyio", reason="no anyio here: `run.py interop` has it")
    source = """
        import anyio
        import pytest

        @pytest.fixture
        def anyio_backend(virtual_loop):
            return "asyncio", {"loop_factory": virtual_loop}

        @pytest.mark.anyio
        async def test_an_hour(no_leaks, fake_clock):
            with anyio.move_on_after(3600) as scope:
                await anyio.sleep(7200)
            assert scope.cancelled_caught
            assert fake_clock.now() == 3600.0
    """
    # Of another plugin, where it is installed too: it complains of its missing options.
    outcomes, text = run_pytest(tmp_path, source, "-pno:asyncio")
    assert all_passed(outcomes), text


def test_the_virtual_loop_works_in_pytest_asyncio(tmp_path):
    """F3: the clock is the loop's, since its loops are made without fixtures."""
    pytest.importorskip("pytest_asyncio", minversion="1.4", reason="no pytest-asyncio 1.4 here")
    conftest = """
        import asyncio

        import pytest_asyncio
        from timebounds.testing import FakeClock, VirtualLoop

        def pytest_asyncio_loop_factories(config, item):
            return {"virtual": lambda: VirtualLoop(FakeClock())}

        @pytest_asyncio.fixture
        async def fake_clock():
            return asyncio.get_running_loop().timebounds_clock
    """
    source = """
        import asyncio

        import pytest

        @pytest.mark.asyncio
        async def test_an_hour(fake_clock):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3600):
                    await asyncio.sleep(7200)
            assert fake_clock.now() == 3600.0

        @pytest.mark.asyncio
        async def test_a_script(fake_clock, scripted_socket):
            assert scripted_socket().clock is fake_clock
            assert fake_clock.now() == 0.0
    """
    scope = "-oasyncio_default_fixture_loop_scope=function"
    outcomes, text = run_pytest(tmp_path, source, scope, conftest=conftest)
    assert all_passed(outcomes), text
