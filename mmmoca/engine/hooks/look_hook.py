# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sized

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.checkpoints import run_record
from mmmoca.checkpoints.record import normalisation
from mmmoca.datasets.image_set import loader_of
from mmmoca.datasets.loading import LoadImage
from mmmoca.datasets.look import Look, look_at
from mmmoca.datasets.look.images import PIXELS
from mmmoca.datasets.seeding import members
from mmmoca.engine.mmengine import built_loops, loaders_by_role
from mmmoca.engine.processes import on_main_process
from mmmoca.engine.steps import unwrap_model
from mmmoca.messages import listed
from mmmoca.registry import HOOKS


@HOOKS.register_module()
class LookHook(Hook):
    """Looks at the data of a run once, before the run begins.

    Tables about the data are written to the log file. The console shows what
    stands out, one line for each fact. :class:`~mmmoca.engine.ConsoleRunner`
    adds this hook automatically. The key ``look`` of a config contains the
    arguments of the hook, and ``look=None`` leaves the hook out.

    Args:
        pixels (int): Number of images to decode in each data set. Defaults to
            200.

    Attributes:
        look (Look | None): What was found; None before the run.

    Raises:
        ValueError: If data are certainly wrong. The message says what is
            wrong.
    """

    priority = 'VERY_HIGH'

    def __init__(self, pixels: int = PIXELS) -> None:
        self.pixels = pixels
        self.look: Look | None = None

    def before_run(self, runner: Runner) -> None:
        """Look at the data sets that this run reads."""
        # A validation on training images would show the same images again.
        seen = [
            loop.dataloader
            for loop in built_loops(runner)
            if getattr(loop, 'of_training', False)
        ]
        sets = {
            role: loader.dataset
            for role, loader in loaders_by_role(runner).items()
            if loader not in seen
        }
        _check_annotations(runner, sets)
        model = unwrap_model(runner.model)
        record = run_record(runner.cfg.to_dict(), model)
        numbers = normalisation(record.get('preprocessing', {}))
        head = getattr(model, 'head', None)
        classes = getattr(head, 'num_classes', None)
        look = on_main_process(look_at, sets, numbers, self.pixels, classes)
        # The loaders' workers should not report the images again that the look
        # has named.
        for loader in loaders_by_role(runner).values():
            for part in members(loader.dataset):
                if isinstance(load := loader_of(part), LoadImage):
                    load.skip_silently(look.named)
        self.look = look
        runner.logger.info(f'Data:\n{look}')
        if look.wrong:
            raise ValueError(listed(look.wrong, 2))
        for line in look.odd:
            runner.logger.warning(line)


def _check_annotations(runner: Runner, sets: dict[str, Sized]) -> None:
    """Refuse annotations that mmdetection's metric would misread.

    If a file has no annotations, COCO's evaluation would give -1 for every
    metric. The evaluation sorts categories by id, but for
    ``classwise=True`` mmdetection names them in the order of the file.
    """
    for stage in sets.keys() & {'val', 'test'}:
        for part in members(sets[stage]):
            if not hasattr(part, 'boxes'):
                continue
            metrics = [
                metric
                for metric in getattr(runner, f'{stage}_evaluator').metrics
                if not getattr(metric, 'format_only', False)
            ]
            classwise = any(getattr(m, 'classwise', False) for m in metrics)
            if metrics and not part.boxes.totals():
                raise ValueError(
                    f'{part.ann_file} has no annotations, so metrics cannot '
                    f'be computed: set {stage}_evaluator.format_only=True and '
                    f'{stage}_evaluator.outfile_prefix=PATH to save only '
                    'predictions'
                )
            if classwise and part.cat_ids != sorted(part.cat_ids):
                raise ValueError(
                    f'the categories of {part.ann_file} do not ascend by id, '
                    "so classwise=True would print one category's metrics "
                    "under another category's name: number them in the order "
                    'of the file'
                )
