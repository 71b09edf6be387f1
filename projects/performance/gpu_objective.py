# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The part of gpu.py that measures the objective alone."""

from collections.abc import Iterator, Sequence
from functools import partial
from unittest import mock

import torch
from torch import Tensor

from gpu_attempts import attempt
from gpu_figures import Failure, Outcome, Row
from gpu_setting import Setting
from measure import Cost, cost_of
from objective_forms import FORMS, build


def objective(setting: Setting) -> Iterator[Outcome]:
    """Targets and L_LOC in the forms of ``OBJECTIVES``."""
    sizes, batch = setting.sizes, setting.sizes.base.batch
    first = None
    for form in OBJECTIVES:
        make = partial(build, form, batch, sizes.words, setting.device)
        measure = partial(
            cost_of, make, setting.device, sizes.repeats, sizes.warm_up
        )
        with mock.patch.dict(FORMS, OBJECTIVES):
            cost = attempt(f'objective, {form}', measure)
        if isinstance(cost, Failure):
            yield cost
            continue
        values = dict(form=form)
        if isinstance(cost, Cost):
            first = first or cost
            values |= {
                'ms': cost.seconds * 1e3,
                'against the first': first.seconds / cost.seconds,
                'GiB': cost.mebibytes / 1024,
                'memory against it': cost.mebibytes / first.mebibytes,
            }
        else:
            values['ms'] = cost
        yield Row(f'Objective, batch {batch}, K={sizes.words}', values)


def _in_half(features: Sequence[Tensor], *args) -> tuple[Tensor, ...]:
    """As in the authors' step."""
    with torch.autocast(features[0].device.type, torch.float16):
        return FORMS['straightforward'](features, *args)


OBJECTIVES = {
    'straightforward, fp32': FORMS['straightforward'],
    'straightforward, autocast to fp16': _in_half,
    'lean, fp32': partial(FORMS['lean'], allow_tf32=False),
    'lean, TF32': FORMS['lean'],
}
