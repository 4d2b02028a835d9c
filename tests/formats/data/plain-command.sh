#!/bin/bash
TP=8
RECOMPUTE="--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
python -m torch.distributed.launch --nproc_per_node 8 pretrain_gpt.py \
  --num-layers 96 --hidden-size 12288 \
  --num-attention-heads 96 \
  --seq-length 2048 --max-position-embeddings=2048 \
  --vocab-size 51200 --micro-batch-size 1 --global-batch-size 1536 \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size 16 --sequence-parallel \
  --num-layers-per-virtual-pipeline-stage 2 \
  --fp16 $RECOMPUTE
