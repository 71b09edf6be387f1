# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Mean and std of the drawn fields, as reflectance times 10000. Replace both
# with the numbers that tools/dataset_converters/band_statistics.py prints for
# your images.
# fmt: off
bands_mean = [
    1659.11, 1358.11, 1277.99, 1112.52, 1433.05, 2198.57, 2456.0, 2586.99,
    2677.1, 818.376, 16.0355, 2017.77, 1392.42,
]
bands_std = [
    499.354, 456.545, 515.595, 681.442, 773.049, 1188.23, 1420.97, 1512.34,
    1569.32, 477.764, 6.3903, 1314.86, 1107.42,
]
