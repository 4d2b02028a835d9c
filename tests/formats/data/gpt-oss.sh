#!/bin/bash
# Don't mind the quote in this comment: arrays are what counts.
export CUDA_DEVICE_MAX_CONNECTIONS=1
NUM_LAYERS=24
SEQ_LENGTH=${SEQ_LENGTH:-8192}
TP=2 ; PP=4
OUT=$1
echo "starting $(date) isn't it"

DISTRIBUTED_ARGS=(
    --nproc_per_node 8
    --nnodes 2
)

MODEL_ARGS=(
    --num-layers ${NUM_LAYERS}     # layers
    --hidden-size 2880 --ffn-hidden-size 2880
    --num-attention-heads 64 --kv-channels 64
    --group-query-attention
    --num-query-groups 8
    --seq-length "${SEQ_LENGTH}"
    --max-position-embeddings 131072
    --position-embedding-type rope
    --normalization 'RMSNorm'
    --quick-geglu
    --softmax-type learnable
    --window-size 128,0
    --untie-embeddings-and-output-weights
    --num-experts 32 --moe-router-topk 4 --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    "--vocab-size 201088"
)

TRAINING_ARGS=(--micro-batch-size 1 --global-batch-size 128 --bf16
    --attention-dropout 0 --hidden-dropout 0 --save "$OUT" --save-interval 500 --lr 1.0e-5)
if [ -n "$EXTRA" ]; then
TRAINING_ARGS+=( --use-distributed-optimizer )
fi
PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --pipeline-model-parallel-layout "Et*3|(tt|)*9ttt|L"
)

torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} \
    ${PARALLEL_ARGS[@]}
