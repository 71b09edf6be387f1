# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Low-shot classification on your own classes, one folder each, with random
# training images:
#   python tools/test.py configs/classification/THIS.py CHECKPOINT \
#       --cfg-options data_root=/path/to/classes
_base_ = './lowshot_vit-b16_in1k.py'

# train/<class>/*.jpg, val/<class>/*.jpg
settings = 'own_classes'
test_cfg = dict(
    data_root='data/own-classes/',
    seed=0,
    # If classes have fewer than 5 images: test_cfg.subsets.5shot=None
    subsets={
        '_delete_': True,
        '1shot': dict(shots=1, sets=3),
        '2shot': dict(shots=2, sets=3),
        '5shot': dict(shots=5, sets=3),
        '1percent': dict(percent=1, sets=1),
    },
)
