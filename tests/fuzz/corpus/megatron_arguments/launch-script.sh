#!/bin/bash
# made up
TP=2; SIZE=small
if [ "$SIZE" = small ]; then
  MODEL=( --num-layers 4 --hidden-size 64 --num-attention-heads 4
    --vocab-size 1000 --seq-length 64 )
else TP=4
fi
MODEL+=( --bf16 )
OPTS="--micro-batch-size 1 --global-batch-size 8"
OPTS="$OPTS --lr ${LR:-1e-4} 'a b'"
DATA=( /data/a /data/b )
ALL=( "${MODEL[@]}" "--tensor-model-parallel-size $TP" )
python tools/prepare.py --input x > log 2>&1
case $1 in big) echo;; esac
CMD="torchrun --nproc_per_node 2 pretrain_gpt.py ${OPTS}"
srun bash -c "
 torchrun pretrain_gpt.py ${ALL[*]} $OPTS ${MORE[@]:---fp8-format hybrid} ${NONE[@]} \
  --data-path ${DATA[@]} --config some.py $@; echo done"
