"""Runs of what needs a real peer: where all of it is left out, since the peer is missing, nothing has passed."""

from __future__ import annotations

from typing import Final

import pytest

NOTHING_RAN: Final = 77
"""The exit code of a run that only skipped, as automake has it; the gate counts it as skipped."""


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and reporter is not None:
        counts = {outcome: len(reports) for outcome, reports in reporter.stats.items()}
        if counts.get("skipped") and not counts.get("passed"):
            session.exitstatus = NOTHING_RAN
