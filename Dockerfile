# CPUs, and GPUs by NVIDIA's container runtime. For mmcv's operators on a GPU:
#   docker build --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 .
# Its CUDA is that of the pinned PyTorch.
ARG BASE=python:3.11-slim
FROM ${BASE}

ENV DEBIAN_FRONTEND=noninteractive
# OpenCV needs the two libraries; slim images lack compiler and make.
RUN apt-get update && apt-get install -y --no-install-recommends \
        g++ git libgl1 libglib2.0-0 make \
        $(command -v python3 >/dev/null || echo python3-dev python3-venv) \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /workspace/mmmoca
COPY . .
# Of the GPUs that the operators are for: A100, H100, and later ones.
ARG TORCH_CUDA_ARCH_LIST='8.0;9.0+PTX'
# The pinned versions of requirements.txt, in .venv. No GPU is seen here: a
# toolkit says that the operators are for one.
RUN if command -v nvcc >/dev/null; then export CUDA_HOME=/usr/local/cuda; fi; \
    make .venv/.complete ops
ENV PATH=/workspace/mmmoca/.venv/bin:$PATH
CMD ["bash"]
