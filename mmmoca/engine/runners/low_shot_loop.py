# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Low-shot classification by logistic regression as a test."""

import tempfile
from collections.abc import Sequence

from torch import Tensor

from mmmoca.evaluation.features import FeatureShard
from mmmoca.evaluation.loaders import class_names, with_data_root
from mmmoca.evaluation.protocols.lowshot import (
    low_shot_features,
    low_shot_predictions,
)
from mmmoca.evaluation.subsets import images_by_class, read_subsets
from mmmoca.registry import DATASETS, LOOPS

from .feature_loop import FeatureLoop


@LOOPS.register_module()
class LowShotTestLoop(FeatureLoop):
    """Classification from 1, 2, 5 images a class or 1 % of all.

    The paper's low-shot protocol (Table 5d, after MSN): frozen features, each
    row minus its mean and L2-normalised, and a multinomial logistic regression
    for each subset. The ranks share the regressions. The feature is the mean
    of the patch tokens WITHOUT the final norm (for MSN [CLS] without it).

    Each image's data sample gets ``lowshot_pred`` (name -> the label that
    each set's classifier predicts) for :class:`LowShotAccuracy`. A warning
    names the regressions that do not converge.

    Args:
        *args: See :class:`FeatureLoop`.
        train_dataloader (dict): Loader of the training images. Its data set
            (:class:`mmmoca.ImageFolder`) reads the subsets' images only.
        subsets (dict[str, str | Sequence[str] | dict | None]): Name -> file
            with a list of images, or several files whose accuracies are
            averaged; or what to draw: ``dict(shots=5, sets=3)``. For the
            format see :func:`mmmoca.evaluation.subsets.read_subsets`.
        regularization (float): Lambda. Defaults to 0.1.
        max_iter (int): Iterations of L-BFGS. Defaults to 300.
        seed (int): Seed of the drawn subsets. Defaults to 0.
        **kwargs: See :class:`FeatureLoop`.

    Raises:
        ImportError: If scikit-learn is not installed.
        ValueError: If an argument is out of range, the images to classify
            have no label, or a subset is empty or names unknown classes or
            one class only.
        FileNotFoundError: If a subset names missing images.
    """

    def __init__(
        self,
        *args,
        train_dataloader: dict,
        subsets: dict[str, str | Sequence[str] | dict | None],
        regularization: float = 0.1,
        max_iter: int = 300,
        seed: int = 0,
        **kwargs,
    ) -> None:
        super().__init__(*args, **kwargs)
        import sklearn  # noqa: F401  fails before hours of extraction

        if min(regularization, max_iter) <= 0:
            raise ValueError('regularization and max_iter must be above 0')
        self.fit = dict(regularization=regularization, max_iter=max_iter)
        source = with_data_root(train_dataloader, self.data_root)
        dataset = source['dataset']
        # Only who draws needs to know all images.
        drawn = any(isinstance(source, dict) for source in subsets.values())
        found = DATASETS.build(dict(dataset, lazy_init=not drawn))
        images = images_by_class(found) if drawn else None
        # Name -> for each set the rows of its images among all of them.
        union, self.subsets = read_subsets(
            subsets,
            found.img_prefix,
            class_names(self.dataloader),
            images,
            seed,
        )
        with tempfile.NamedTemporaryFile('w', suffix='.txt') as file:
            file.writelines(
                f'{image} {label}\n' for image, label in union.items()
            )
            file.flush()
            self.labelled = self.build_labelled(
                dict(source, dataset=dict(dataset, ann_file=file.name))
            )

    def scale(self, feats: Tensor) -> Tensor:
        """See :func:`low_shot_features`."""
        return low_shot_features(feats)

    def predict(
        self, known: FeatureShard, asked: FeatureShard
    ) -> list[list[dict]]:
        """Fit the classifiers, see :func:`low_shot_predictions`."""
        return [low_shot_predictions(known, asked, self.subsets, **self.fit)]
