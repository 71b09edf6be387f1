# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from tests.conftest import own_instances, root  # noqa: F401  fixtures
