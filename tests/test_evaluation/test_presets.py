# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.

from mmmoca.evaluation.presets import PRESETS, choose_preset


def test_what_a_method_publishes():
    assert choose_preset('mmmoca') == PRESETS['moca']
    assert choose_preset('timm') == PRESETS['moca']._replace(method=None)
    assert choose_preset('timm', 'ibot').linear == 'cls-avg'
    # A feature changes no other setting of the method.
    preset = choose_preset('msn', 'avg')
    assert preset.method == 'msn' and preset.regularization == 0.0025
    assert preset.knn == preset.linear == preset.lowshot == 'avg'
