# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from .hooks import *  # noqa: F403
from .optimizers import *  # noqa: F403
from .recipe import complete_recipe  # noqa: F401
from .runners import *  # noqa: F403
from .schedulers import *  # noqa: F403
