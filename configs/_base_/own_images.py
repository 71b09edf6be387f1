# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# For runs on your own images, data_root, knn_root, epochs, batch_size,
# img_size, jitter, grey, blur, flip and solarize are settings.
settings = 'own_images'
