# CPUs, and GPUs by NVIDIA's container runtime. For mmcv's operators on a GPU:
#   docker build --build-arg BASE=nvidia/cuda:12.8.1-devel-ubuntu24.04 .
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
# The pinned versions of requirements.txt, in .venv.
RUN make .venv/.complete ops
ENV PATH=/workspace/mmmoca/.venv/bin:$PATH
CMD ["bash"]
