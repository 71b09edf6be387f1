# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Low-shot classification by logistic regression as a test loop."""

import copy
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from mmengine.dist import get_rank, get_world_size, is_main_process
from mmengine.evaluator import Evaluator
from mmengine.runner import TestLoop
from mmpretrain.structures import DataSample
from torch import Tensor
from torch.utils.data import DataLoader

from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation.features import (
    FeatureShard,
    describe_batch,
    extract_shard,
)
from mmmoca.evaluation.gather import gather_samples
from mmmoca.evaluation.loaders import check_loader, class_names, moved
from mmmoca.evaluation.low_shot import (
    low_shot_features,
    low_shot_predictions,
    low_shot_results,
    low_shot_table,
)
from mmmoca.evaluation.subsets import read_subsets
from mmmoca.files import write_json
from mmmoca.registry import DATASETS, LOOPS

__all__ = ['LowShotTestLoop']


@LOOPS.register_module()
class LowShotTestLoop(TestLoop):
    """Classification from 1, 2, 5 images a class or 1 % of all.

    The paper's low-shot protocol (Table 5d, after MSN): frozen features, each
    row minus its mean and L2-normalised, and a multinomial logistic regression
    for each subset. The regressions are shared out over the ranks.

    Each image's data sample gets ``lowshot_pred`` (name -> the label that
    each set's classifier predicts) for :class:`LowShotAccuracy`. The
    accuracies are printed as a table, and written to ``lowshot.json`` in the
    work dir with those of each set. A regression that does not converge is a
    warning, and named there.

    Args:
        runner (Runner): The runner. Its model has ``data_preprocessor`` and
            ``extract_feat(inputs)``, which returns (B, D), or a tuple whose
            last item is that: here the mean of the patch tokens WITHOUT the
            final norm (for MSN [CLS] without it).
        dataloader (DataLoader or dict): Loader of the images to classify.
        evaluator (Evaluator or dict or list): Metrics.
        train_dataloader (dict): Loader of the training images; its data set
            (:class:`mmmoca.ImageFolder`) is given the list of the subsets'
            images.
        subsets (dict[str, str | Sequence[str]]): Name -> list of images, or
            several lists whose accuracies are averaged. For their format see
            :func:`mmmoca.evaluation.subsets.read_subset`.
        regularization (float): Lambda. Defaults to 0.1.
        max_iter (int): Iterations of L-BFGS. Defaults to 300.
        tol (float): Bound on the gradient of the summed loss, see
            :func:`mmmoca.evaluation.low_shot.fit_low_shot`. Defaults to 1e-4.
        which (str, optional): 'teacher' or 'student', handed on to
            ``extract_feat``; the model's own default if not given.
        fp16 (bool): Extract under autocast (bfloat16 on a CPU). Defaults to
            False.
        log_interval (int): Batches from one log line to the next. Defaults
            to 50.
        data_root (str, optional): Folder of both sets, in the place of the
            ``data_root`` that each has.

    Raises:
        ValueError: If an argument is out of range, the images to classify
            have no class folders or are of one class only, or a subset is
            empty or names unknown classes or one class only.
        FileNotFoundError: If a subset names missing images.
    """

    def __init__(
        self,
        runner,
        dataloader: DataLoader | dict,
        evaluator: Evaluator | dict | list,
        train_dataloader: dict,
        subsets: dict[str, str | Sequence[str]],
        regularization: float = 0.1,
        max_iter: int = 300,
        tol: float = 1e-4,
        which: str | None = None,
        fp16: bool = False,
        log_interval: int = 50,
        data_root: str | None = None,
    ) -> None:
        dataloader = moved(dataloader, data_root)
        train_dataloader = moved(train_dataloader, data_root)
        super().__init__(runner, dataloader, evaluator, fp16=fp16)
        if find_spec('sklearn') is None:
            raise ImportError(
                'LowShotTestLoop needs scikit-learn: pip install scikit-learn'
            )
        for name, value in (
            ('regularization', regularization),
            ('max_iter', max_iter),
            ('tol', tol),
        ):
            if value <= 0:
                raise ValueError(f'{name} must be above 0, but got {value}')
        self.fit = dict(
            regularization=regularization, max_iter=max_iter, tol=tol
        )
        self.which = which
        check_loader(self.dataloader, 'low-shot test')
        self.classes = class_names(self.dataloader)
        if len(self.classes) < 2:
            raise ValueError(
                'The low-shot test images need at least two classes, but '
                f'have {len(self.classes)}: put those of each class into a '
                'folder of its own, <data_root>/<class>/<image>.'
            )
        self.train_loader = self._build_train_loader(train_dataloader, subsets)
        self.log_interval = log_interval

    def _build_train_loader(
        self, config: dict, subsets: dict[str, str | Sequence[str]]
    ) -> DataLoader:
        """Loader of the union of all subsets, which fills ``subsets``."""
        config = copy.deepcopy(config)
        config.setdefault(
            'sampler', dict(type='DefaultSampler', shuffle=False)
        )
        dataset = DATASETS.build(
            dict(config['dataset'], ann_file='', lazy_init=True)
        )
        # Name -> for each set the rows of its images among all of them.
        union, self.subsets = read_subsets(
            subsets, dataset.img_prefix, self.classes
        )
        absent = len(self.classes) - len(set(union.values()))
        if absent:
            self.runner.logger.warning(
                f'{absent} of {len(self.classes)} classes are in no subset: '
                'their images cannot be classified'
            )
        with tempfile.NamedTemporaryFile('w', suffix='.txt') as file:
            file.writelines(
                f'{image} {label}\n' for image, label in union.items()
            )
            file.flush()
            dataset.ann_file = file.name
            dataset.full_init()
        config['dataset'] = dataset
        return self.runner.build_dataloader(config, seed=self.runner.seed)

    def run(self) -> dict:
        """Extract or read the features, fit, classify, report.

        Returns:
            dict: Metrics of the evaluator.
        """
        runner = self.runner
        runner.call_hook('before_test')
        runner.call_hook('before_test_epoch')
        runner.model.eval()
        train = self._features(self.train_loader, 'low-shot training')
        test = self._features(self.dataloader, 'low-shot test')
        predictions, unconverged = low_shot_predictions(
            train, test.feats, self.subsets, runner.logger, **self.fit
        )
        if unconverged:
            runner.logger.warning(
                f'{len(unconverged)} of {predictions.shape[1]} low-shot '
                f'regressions have not converged ({"; ".join(unconverged)}): '
                f'raise test_cfg.max_iter, which is {self.fit["max_iter"]}'
            )
        self._process(predictions, test)
        metrics = self.evaluator.evaluate(len(self.dataloader.dataset))
        if is_main_process():
            self._report(predictions, test.labels, unconverged)
        runner.call_hook('after_test_epoch', metrics=metrics)
        runner.call_hook('after_test')
        return metrics

    def _features(self, loader: DataLoader, role: str) -> FeatureShard:
        """All images of a loader, on each rank, in the order of its data."""
        model = unwrap_model(self.runner.model)
        ids, feats, labels = extract_shard(
            loader,
            lambda batch: describe_batch(
                model, batch, role, self.which, self.fp16
            ),
            f'{role} images',
            self.runner.logger,
            log_interval=self.log_interval,
        )
        feats = low_shot_features(feats.cpu())
        return FeatureShard(*gather_samples(ids, feats, labels))

    def _process(self, predictions: Tensor, test: FeatureShard) -> None:
        """Hand this rank's share of the predictions to the metrics."""
        samples = []
        counts = [len(sets) for sets in self.subsets.values()]
        for row in range(get_rank(), len(predictions), get_world_size()):
            parts = predictions[row].split(counts)
            by_name = dict(zip(self.subsets, map(Tensor.tolist, parts)))
            sample = DataSample(
                metainfo=dict(
                    sample_idx=int(test.ids[row]),
                    num_classes=len(self.classes),
                )
            )
            sample.set_gt_label(test.labels[row])
            sample.set_field(by_name, 'lowshot_pred')
            samples.append(sample)
        self.evaluator.process(data_samples=samples)

    def _report(
        self, predictions: Tensor, labels: Tensor, unconverged: list[str]
    ) -> None:
        hits = (predictions == labels[:, None]).double()
        results = low_shot_results(
            self.subsets, (100 * hits.mean(dim=0)).tolist()
        )
        path = Path(self.runner.work_dir) / 'lowshot.json'
        write_json(
            path,
            dict(
                protocol='low-shot',
                checkpoint=self.runner.cfg.get('load_from'),
                test_images=len(labels),
                classes=len(self.classes),
                **self.fit,
                unconverged=unconverged,
                results=results,
            ),
        )
        table = low_shot_table(results)
        self.runner.logger.info(f'{path}\n{table}')
