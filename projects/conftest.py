# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from tests.conftest import (  # noqa: F401  fixtures
    own_instances,
    own_tools,
    root,
)
