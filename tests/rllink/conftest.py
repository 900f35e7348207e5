"""What the tests of RLlink rely on."""

from __future__ import annotations

import pytest

from ospbridge.rllink.dialects import DIALECTS, Dialect


@pytest.fixture(scope="session", params=DIALECTS.values(), ids=list(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Each of them, for whichever test asks."""
    found: Dialect = request.param
    return found
