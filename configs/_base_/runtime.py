# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The runtime of pretraining and evaluations. Hooks have names, so that one key
# changes one setting: default_hooks.logger.interval=10
default_scope = 'mmpretrain'

default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    # All curves count iterations, including those of k-NN.
    logger=dict(
        type='LoggerHook',
        interval=100,
        ignore_last=False,  # also log the last step of each epoch
        log_metric_by_epoch=False,
    ),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(
        type='mmmoca.AtomicCheckpointHook', interval=1, max_keep_ckpts=3
    ),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    checkpoint_fit=dict(type='mmmoca.CheckpointFitHook'),
    class_check=dict(type='mmmoca.ClassCheckHook'),
    reproducibility=dict(type='mmmoca.ReproducibilityHook'),
    step_log=dict(type='mmmoca.StepLogHook'),
    preemption=dict(type='mmmoca.PreemptionHook'),
)
env_cfg = dict(
    cudnn_benchmark=False,  # images for segmentation differ in size
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'),  # tools/train.py: gloo without a GPU
)
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='UniversalVisualizer', vis_backends=vis_backends)
log_level = 'INFO'
load_from = None
resume = False

# All processes have this seed, but each draws its own masks and crops: the
# ReproducibilityHook ensures this.
randomness = dict(seed=0)
