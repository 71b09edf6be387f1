# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
