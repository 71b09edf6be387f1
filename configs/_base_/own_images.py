# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The settings of runs on your own images are data_root, knn_root, epochs,
# batch_size, img_size, jitter, grey, blur, flip and solarize.
settings = 'own_images'
