# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images with the colours, slopes and edges of photographs."""

import cv2
import numpy as np


def photo(seed=0, height=180, width=240):
    """Draw a BGR image (height, width, 3), uint8, with saturated colours."""
    rng = np.random.default_rng(seed)
    img = np.full((height, width, 3), 120.0)
    for cells, contrast in ((3, 60), (9, 40), (40, 20)):
        noise = rng.standard_normal((cells, cells, 3))
        img += contrast * cv2.resize(
            noise, (width, height), interpolation=cv2.INTER_CUBIC
        )
    img[height // 4 : height // 2, width // 3 :] += (70, -50, 20)
    return np.clip(img, 0, 255).astype(np.uint8)
