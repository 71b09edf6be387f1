# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from tests.conftest import own_instances, own_tools  # noqa: F401  fixtures
