# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from pathlib import Path

from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner

from mmmoca.checkpoints import (
    CheckpointError,
    guarded,
    local_file,
)
from mmmoca.checkpoints.fit import FINAL_NORMS, check_fit, loaded_names
from mmmoca.checkpoints.pretrained_init import (
    check_pretrained_inits,
    starts_pretrained,
)
from mmmoca.checkpoints.record import (
    other_feature,
    other_normalisation,
    record_of,
    run_record,
)
from mmmoca.checkpoints.start import (
    START_SCHEME,
    TEACHER_CLS,
    load_start,
    take_backbone,
)
from mmmoca.engine.mmengine import (
    has_loaded,
    is_training,
    load_address,
    resumes,
    set_load_address,
)
from mmmoca.engine.optimizer_check import check_optimizer
from mmmoca.engine.steps import unwrap_model
from mmmoca.registry import HOOKS


@HOOKS.register_module()
class CheckpointFitHook(Hook):
    """Loads a ViT from a checkpoint of any layout; refuses what does not fit.

    ``load_from`` (``tools/test.py CONFIG ANY.pth``) may be a pretraining run
    of this package, the authors' file, or one of DINO, iBOT, MAE, MSN,
    MoCo-v3, DeiT or timm. Its encoder, the teacher if there are two, becomes
    the ``backbone`` of a model whose backbone is mmpretrain's ViT.
    ``mmmoca-student://FILE`` takes the student. A checkpoint of the same
    model, or one that shares a neck or a head with it, is loaded unchanged,
    and so is a resumed run. Weights to start pretraining from
    (``mmmoca-start://``) are fitted to the model.

    MMEngine loads the names that match and only logs the others, so that a
    checkpoint of another layout would leave the model untrained. For every
    model of mmpretrain, mmseg or mmdet these are errors here:

    - ``load_from`` or a ``Pretrained`` init that matches no name, or has
      other shapes (position embeddings are resized);
    - a test of a part without weights from the file, such as a head;
    - a frozen or tested ViT that lacks weights, such as those of the final
      norm, or that has no LayerScale although the file has it;
    - a resumed file whose weights or optimiser do not match. (The run keeps
      the numbers of the file, such as the learning rate. A warning says so if
      the config has others.)

    Args:
        needs_checkpoint (bool): Whether to refuse a run that starts
            from random weights. Defaults to False.

    Attributes:
        filled (list[str]): Lines about what was loaded, and what does not fit.

    Raises:
        CheckpointError: If a checkpoint does not fit. Names examples.
        ValueError: If there is no checkpoint.
    """

    # Other hooks look at the data and at the checkpoint after this one.
    priority = 'HIGH'

    def __init__(self, needs_checkpoint: bool = False) -> None:
        self.needs_checkpoint = needs_checkpoint
        self._start: str | None = None
        self.filled: list[str] = []

    def before_run(self, runner: Runner) -> None:
        """Check the files of ``Pretrained`` inits, and what to load."""
        model = unwrap_model(runner.model)
        training, address = is_training(runner), load_address(runner)
        starts = training and not resumes(runner)
        if starts and address.startswith(START_SCHEME):
            self._start = address
            set_load_address(runner, None)
        elif address:
            # MMEngine's own reader would run code of the file.
            set_load_address(runner, guarded(address))
        # Without training, MMEngine initialises nothing.
        inits = check_pretrained_inits(model) if training else []
        for report, record in inits:
            runner.logger.info(report)
            self.filled.append(report)
            self._compare_record(runner, record, report.split(': ')[0])

    def _compare_record(
        self, runner: Runner, record: dict, source: str
    ) -> None:
        config = runner.cfg.to_dict()
        own = run_record(config, unwrap_model(runner.model))
        notes = other_normalisation(record, own), other_feature(record, config)
        for note in filter(None, notes):
            runner.logger.warning(f'{source}: {note}')
            self.filled.append(note)

    def before_train(self, runner: Runner) -> None:
        """Load what to start from; check that it is there if needed."""
        if self._start is not None:
            with local_file(self._start.removeprefix(START_SCHEME)) as file:
                model = unwrap_model(runner.model)
                filled, record = load_start(model, file)
            for line in filled:
                runner.logger.info(line)
            self.filled += filled
            self._compare_record(runner, record, Path(file).name)
        loaded = has_loaded(runner) or self._start
        loaded = loaded or starts_pretrained(runner.model)
        if self.needs_checkpoint and not loaded:
            raise ValueError(
                'there is no checkpoint to start from: add --cfg-options '
                'load_from=CHECKPOINT, or, to train from scratch, '
                'default_hooks.checkpoint_fit.needs_checkpoint=False'
            )

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Fit the checkpoint to the model, then compare the parameters."""
        model = unwrap_model(runner.model)
        own = model.state_dict()
        address = load_address(runner) or 'the checkpoint'
        source = address.removeprefix(guarded(''))
        changes = []
        if not resumes(runner) and TEACHER_CLS not in own:
            changes = take_backbone(checkpoint, model, source)
        saved, meta = loaded_names(checkpoint), checkpoint.get('meta')
        training = is_training(runner)
        report = check_fit(model, saved, meta, source, training)
        if resumes(runner):
            if saved.keys() != own.keys():
                raise CheckpointError(
                    f'{report}: resume by its own config. Without load_from '
                    'the newest checkpoint of the work dir is resumed'
                )
            if 'iter' not in (meta or {}) or not checkpoint.get('optimizer'):
                raise CheckpointError(
                    'there is no run in the checkpoint: start from its '
                    'weights by load_from=FILE with resume=False'
                )
            wrapper = runner.optim_wrapper
            if isinstance(wrapper, OptimWrapper):  # a training
                for warning in check_optimizer(
                    checkpoint['optimizer'], wrapper
                ):
                    runner.logger.warning(warning)
        missing = dict(model.named_parameters()).keys() - saved.keys()
        if missing and not training:
            config = Path(source).with_suffix('.py')  # of a winning head
            hint = f'. Its own config is {config}' if config.is_file() else ''
            raise CheckpointError(
                f'{report}: the missing parts would be tested untrained{hint}'
            )
        # A whole part that the file has not, such as a head, is a new one.
        norms = {f'backbone.{name}' for name in FINAL_NORMS}
        new = own.keys() - saved.keys() - norms
        new = {name.partition('.')[0] for name in new}
        held = {name.partition('.')[0] for name in saved}
        design = saved.keys() <= own.keys() and not new & held
        log = runner.logger.info if design else runner.logger.warning
        line = '; '.join([report, *changes])
        log(line)
        self.filled.append(line)
        if not resumes(runner):
            self._compare_record(runner, record_of(meta), source)
