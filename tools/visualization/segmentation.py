# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Show a segmentor's maps: ``python .../segmentation.py CONFIG CHECKPOINT``.

Each row is an image, the truth over it if there is one, and the prediction
over it, by mmsegmentation's inferencer in the colours of the data set.
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import add_model_arguments, image_file, import_stack


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description='Draw truth and prediction over images'
    )
    add_model_arguments(parser)
    parser.add_argument(
        '--images',
        nargs='+',
        type=image_file,
        default=[],
        metavar='FILE',
        help='show these, without truth, instead of the validation set',
    )
    parser.add_argument(
        '--indices',
        type=int,
        nargs='+',
        default=[0, 1, 2, 3],
        help='which images of the validation set (0 1 2 3)',
    )
    parser.add_argument('--out', type=Path, default=Path('segmentation.png'))
    parser.add_argument(
        '--opacity', type=float, default=0.6, help='of the colours (0.6)'
    )
    return parser.parse_args()


def main() -> None:
    """Draw it."""
    args = parse_args()
    import_stack()
    from mmengine.config import Config
    from mmseg.apis import MMSegInferencer
    from mmseg.registry import DATASETS

    from mmmoca.files import write_figure
    from mmmoca.visualization.inferencers import build_inferencer
    from mmmoca.visualization.segmentation import draw_maps, predict_row

    cfg = Config.fromfile(args.config)
    cfg.merge_from_dict(args.cfg_options)
    inferencer = build_inferencer(
        MMSegInferencer, cfg, args.checkpoint, 'SegLocalVisualizer'
    )
    rows = [(str(path), args.opacity) for path in args.images]
    if not rows:
        dataset = DATASETS.build(cfg.val_dataloader.dataset)
        for index in args.indices:
            truth = dataset[index % len(dataset)]['data_samples']
            rows.append((truth.img_path, args.opacity, truth))
    figure = draw_maps(
        [predict_row(inferencer, *row) for row in rows],
        inferencer.visualizer.dataset_meta,
    )
    write_figure(args.out, figure, dpi=110)
    print(args.out)


if __name__ == '__main__':
    main()
