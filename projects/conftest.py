# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from tests.conftest import (  # noqa: F401  fixtures
    no_first_weights,
    own_instances,
    own_tools,
    root,
)
