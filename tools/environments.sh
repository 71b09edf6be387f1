#!/usr/bin/env bash
# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Make an environment of docs/get_started/install.md and run the quick tests
# there, or the README's commands. FOLDER gets a copy of this checkout and its
# .venv, about 7 GB.
set -euo pipefail

if [[ $# -ne 2 || ! $1 =~ ^(lowest|own|pinned|newest|readme)$ ]]; then
    echo "Usage: $0 lowest|own|pinned|newest|readme FOLDER" >&2
    echo 'PYTHON=/path/to/python chooses the Python' >&2
    exit 2
fi
mkdir -p "$2"
folder=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."
git ls-files -z | tar -cf - --null -T - | tar -xf - -C "$folder"
cd "$folder"
unset PYTHONPATH

# Make a .venv that `make` takes for its own.
environment() { # PYTHON
    "${PYTHON:-$1}" -m venv --clear .venv
    .venv/bin/python -m pip install -q uv
    touch .venv/.complete
}

install() {
    .venv/bin/python -m uv pip install -q --python .venv/bin/python "$@"
}

# mmsegmentation and mmdet import mmcv's operators, which an old setuptools
# builds. mmsegmentation needs ftfy but does not declare it. Our extra `dev`
# installs transformers 4.50 or later, but mmpretrain imports names that 4.50
# removed, so an older version replaces it.
openmmlab() { # PYTORCH ...
    install "$@" 'setuptools==80.*' ninja mmengine
    .venv/bin/python tools/build_mmcv_ops.py --own 2.1.0
    install -e '.[openmmlab,dev]' "$@" 'setuptools==80.*' 'mmsegmentation==1.2.*' \
        'mmdet==3.3.*' pycocotools ftfy regex
    install 'transformers<4.50'
}

quick_tests() {
    .venv/bin/python -m uv pip list -q --python .venv/bin/python | grep -E \
        '^(torch|(onedl-)?mm[a-z]+|numpy|opencv-python|timm|transformers) '
    make -o lint test-quick # another ruff asks for other things
}

# Run the README's commands that need neither ImageNet nor a GPU, on 64 images
# for one epoch.
readme_commands() {
    make demo
    mkdir -p images
    find work_dirs/demo/textures/train -type f | sort | head -n 64 |
        xargs -I{} cp {} images
    . .venv/bin/activate
    python - <<'EOF'
import mmmoca

checkpoint = mmmoca.pretrain(data='images', out='work_dirs/own', epochs=1)
features = mmmoca.load(checkpoint).embed('images').avg
assert features.shape == (64, 384)
EOF
    python tools/train.py configs/moca_vit-b16_own-images.py \
        --cfg-options data_root=images epochs=1 batch_size=32
    # This starts from the weights exported above, so nothing is downloaded.
    python tools/export.py work_dirs/moca_vit-b16_own-images/epoch_1.pth \
        work_dirs/timm --to timm
    python tools/train.py configs/moca_vit-b16_own-images.py \
        --init work_dirs/timm/model.safetensors --work-dir work_dirs/init \
        --cfg-options data_root=images epochs=1 batch_size=32
}

case $1 in
lowest)
    environment python3.10
    openmmlab torch==2.6.0 torchvision==0.21.0 numpy==1.26.4 \
        mmengine==0.10.7 mmpretrain==1.2.0
    quick_tests
    ;;
own)
    environment python3.12
    openmmlab torch==2.11.0 torchvision==0.26.0
    quick_tests
    ;;
pinned)
    make .venv/.complete ${PYTHON:+PYTHON="$PYTHON"}
    quick_tests
    ;;
newest)
    environment python3.13
    install -e '.[onedl,seg,det,dev]'
    quick_tests
    ;;
readme)
    environment python3
    .venv/bin/python -m pip install -q -e '.[onedl,eval]'
    readme_commands
    ;;
esac
