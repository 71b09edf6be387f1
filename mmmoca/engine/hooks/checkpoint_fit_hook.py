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

    ``load_from`` (``tools/test.py CONFIG ANY.pth``) may be a checkpoint of
    this package's pretraining, the authors' checkpoint, or one of DINO, iBOT,
    MAE, MSN, MoCo-v3, DeiT or timm. If the backbone of the model is
    mmpretrain's ViT, the encoder in the checkpoint becomes this ``backbone``.
    If the checkpoint has two encoders, the hook takes the teacher; with
    ``mmmoca-student://FILE`` it takes the student. A checkpoint of the same
    model, or one that shares a neck or a head with it, is loaded unchanged; so
    is the checkpoint of a resumed run. Weights to start pretraining from
    (``mmmoca-start://``) are fitted to the model.

    MMEngine loads the names that match and only logs the others, so that a
    checkpoint of another layout would leave the model untrained. For every
    model of mmpretrain, mmseg or mmdet this hook raises an error for:

    - a checkpoint of ``load_from`` or of a ``Pretrained`` init that has no
      name in common with the model, or has tensors of other shapes (position
      embeddings are resized);
    - a test if the weights of a part of the model, such as a head, are not in
      the file;
    - a frozen or tested ViT if some of its weights, such as those of the final
      norm, are not in the file;
    - a ViT without LayerScale if the file has LayerScale;
    - a resumed file whose weights or optimiser do not match. (Numbers of the
      optimiser, such as the learning rate, may differ: the run uses those of
      the file, and a warning says so.)

    Args:
        needs_checkpoint (bool): Whether to refuse a training run that starts
            from random weights. Defaults to False.

    Attributes:
        filled (list[str]): Lines about what was loaded, and what does not fit.

    Raises:
        CheckpointError: If a checkpoint does not fit. The message gives
            examples of names that do not match.
        ValueError: If ``needs_checkpoint`` is True and a training run would
            start from random weights.
    """

    # The checkpoint is fitted before hooks of lower priority read it.
    priority = 'HIGH'

    def __init__(self, needs_checkpoint: bool = False) -> None:
        self.needs_checkpoint = needs_checkpoint
        self._start: str | None = None
        self.filled: list[str] = []

    def before_run(self, runner: Runner) -> None:
        """Check ``Pretrained`` inits; choose how ``load_from`` is read."""
        model = unwrap_model(runner.model)
        training, address = is_training(runner), load_address(runner)
        starts = training and not resumes(runner)
        if starts and address.startswith(START_SCHEME):
            self._start = address
            set_load_address(runner, None)
        elif address:
            # MMEngine's own reader would run code in the file.
            set_load_address(runner, guarded(address))
        # Without training, MMEngine does not apply the inits.
        inits = check_pretrained_inits(model) if training else []
        for report, note, record in inits:
            runner.logger.info(report)
            self.filled.append(report)
            self._compare_record(runner, record, report.split(': ')[0], note)

    def _compare_record(
        self, runner: Runner, record: dict, source: str, *notes: str
    ) -> None:
        """Log notes, and how the run differs from a record, as warnings."""
        config = runner.cfg.to_dict()
        own = run_record(config, unwrap_model(runner.model))
        notes += (
            other_normalisation(record, own),
            other_feature(record, config),
        )
        for note in filter(None, notes):
            runner.logger.warning(f'{source}: {note}')
            self.filled.append(note)

    def before_train(self, runner: Runner) -> None:
        """Load weights to start from; refuse random weights if asked to."""
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
        """Fit the checkpoint to the model; refuse it if it does not match."""
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
                    f"{report}: resume with the config of the checkpoint's "
                    'own run. Without load_from, the newest checkpoint in the '
                    'work dir is resumed'
                )
            if 'iter' not in (meta or {}) or not checkpoint.get('optimizer'):
                raise CheckpointError(
                    'the checkpoint contains only weights, so no run can be '
                    'resumed from it: start from these weights with '
                    'load_from=FILE and resume=False'
                )
            wrapper = runner.optim_wrapper
            if isinstance(wrapper, OptimWrapper):  # a training run
                for warning in check_optimizer(
                    checkpoint['optimizer'], wrapper
                ):
                    runner.logger.warning(warning)
        missing = dict(model.named_parameters()).keys() - saved.keys()
        if missing and not training:
            # WinningHeadHook writes a config next to its checkpoint, under the
            # same name.
            config = Path(source).with_suffix('.py')
            hint = f'. Its own config is {config}' if config.is_file() else ''
            raise CheckpointError(
                f'{report}: the missing parts would be tested untrained{hint}'
            )
        # There is no warning if the file lacks a whole part of the model, such
        # as a head, or the final norm. Anything else that does not match is
        # logged as a warning.
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
