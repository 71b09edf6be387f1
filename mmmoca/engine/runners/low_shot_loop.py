# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A test by low-shot classification with logistic regression."""

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
    """Classifies from 1, 2 or 5 images per class, or 1 % of all images.

    This is the paper's low-shot protocol (Table 5d), which follows MSN. The
    frozen feature is the mean of the patch tokens WITHOUT the final norm. (MSN
    itself uses [CLS], also without the norm.) From each feature vector, the
    mean of its entries is subtracted; then the vector is L2-normalised. A
    multinomial logistic regression is fitted to each set of images. The ranks
    divide the regressions among themselves.

    Each image's data sample gets ``lowshot_pred`` for
    :class:`LowShotAccuracy`: a dict that maps each name in ``subsets`` to a
    list of predicted labels, one for each training set of this name. A warning
    names the regressions that do not converge.

    Args:
        *args: See :class:`FeatureLoop`.
        train_dataloader (dict): Loader of the training images. Its data set
            (:class:`mmmoca.ImageFolder`) reads only the subsets' images.
        subsets (dict[str, str | Sequence[str] | dict | None]): For each name,
            a file that lists the images of a set; or several files, whose
            accuracies are averaged; or sets to draw, such as
            ``dict(shots=5, sets=3)``. For the format see
            :func:`mmmoca.evaluation.subsets.read_subsets`.
        regularization (float): Lambda. Defaults to 0.1.
        max_iter (int): Maximum number of L-BFGS iterations. Defaults to 300.
        seed (int): Seed of the drawn subsets. Defaults to 0.
        **kwargs: See :class:`FeatureLoop`.

    Raises:
        ImportError: If scikit-learn is not installed.
        ValueError: If an argument is out of range, if the images to classify
            have no label, or if a subset is empty, or names unknown classes
            or only one class.
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
        # If scikit-learn is missing, fail before features are extracted.
        import sklearn  # noqa: F401

        if min(regularization, max_iter) <= 0:
            raise ValueError('regularization and max_iter must be above 0')
        self.fit = dict(regularization=regularization, max_iter=max_iter)
        source = with_data_root(train_dataloader, self.data_root)
        dataset = source['dataset']
        # All images are listed only if sets are drawn from them.
        drawn = any(isinstance(source, dict) for source in subsets.values())
        found = DATASETS.build(dict(dataset, lazy_init=not drawn))
        images = images_by_class(found) if drawn else None
        # self.subsets: name -> the rows of each set's images in `union`.
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
        """Scale features, (B, D); see :func:`low_shot_features`."""
        return low_shot_features(feats)

    def predict(
        self, known: FeatureShard, asked: FeatureShard
    ) -> list[list[dict]]:
        """Fit the classifiers, see :func:`low_shot_predictions`."""
        return [low_shot_predictions(known, asked, self.subsets, **self.fit)]
