# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Kinds of kernels, the time they take, and which cuDNN is loaded."""

import pytest

from attention import loaded_cudnn
from kernels import busy_time, kind_of


@pytest.mark.parametrize(
    ('kernel', 'kind'),
    [
        ('void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>', 'attention'),
        ('cudnn_generated_fort_native_sdpa_sm90_flash_fprop', 'attention'),
        ('nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT', 'products'),
        ('sm90_xmma_gemm_bf16bf16_bf16f32_tn_n_tilesize128', 'products'),
        ('triton_tem_fused_addmm_3', 'products'),
        ('aten::addmm', 'products'),
        ('multi_tensor_apply_kernel<FusedAdamMathFunctor>', 'optimiser'),
        ('Memcpy HtoD (Pageable -> Device)', 'copies'),
        ('void at::native::CatArrayBatchedCopy<float>', 'copies'),
        # Inductor names a fused kernel after all that is in it.
        ('triton_per_fused_cat_native_layer_norm_0', 'normalisation'),
        ('vectorized_elementwise_kernel<4, MulFunctor>', 'normalisation'),
    ],
)
def test_kind_of_a_kernel(kernel, kind):
    assert kind_of(kernel).startswith(kind)


def test_busy_time_counts_what_overlaps_once():
    spans = [(4, 6), (0, 3), (1, 2), (2, 4), (9, 9.5)]
    assert busy_time(spans) == 6.5
    assert busy_time([]) == 0


def test_loaded_cudnn():
    maps = (
        '7f00-7f10 r-xp 00000000 08:01 17  /usr/lib/libcuda.so.1\n'
        '7f20-7f30 r-xp 00000000 08:01 18  /opt/cuda/lib/libcudnn.so.9\n'
    )
    assert loaded_cudnn(maps) == '/opt/cuda/lib/libcudnn.so.9'
    assert loaded_cudnn('') is None
